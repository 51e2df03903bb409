"""The command line: parses, calls the API once, prints. Heavy imports happen inside the command that needs them."""

import os
import sys

import typer

from foretell.cli import build_command as build
from foretell.cli import check_command as check
from foretell.cli import consumption_command as consumption
from foretell.cli import device_command as device
from foretell.cli import explain_command as explain
from foretell.cli import generate_command as generate
from foretell.cli import history_command as history
from foretell.cli import init_command as init
from foretell.cli import machine_command as machine
from foretell.cli import observe_command as observe
from foretell.cli import predict_command as predict
from foretell.cli import recommend_command as recommend
from foretell.cli import report_command as report
from foretell.cli import run_command as run
from foretell.cli import runs_command as runs
from foretell.cli import sites_command as sites
from foretell.cli import status_command as status
from foretell.cli import store_command as store
from foretell.cli import verify_command as verify
from foretell.cli import workload_command as workload
from foretell.cli._output import clean_text
from foretell.core.errors import ForetellError

app = typer.Typer(
    name="foretell",
    help="Tells what a job will need before it runs (time, memory, GPUs, money) and writes the request for it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: foretell init --command 'python train.py --epochs 100'",
)

app.command(epilog=init.EXAMPLES)(init.init)
app.command(epilog=check.EXAMPLES)(check.check)
app.command(epilog=generate.EXAMPLES)(generate.generate)
app.command(epilog=status.STATUS_EXAMPLES)(status.status)
app.command(epilog=status.CANCEL_EXAMPLES)(status.cancel)
app.command(epilog=build.EXAMPLES)(build.build)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=explain.EXAMPLES)(explain.explain)
app.command(epilog=recommend.EXAMPLES)(recommend.recommend)
app.command(epilog=run.EXAMPLES)(run.run)
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=observe.EXAMPLES, context_settings={"allow_interspersed_args": False})(observe.observe)
app.add_typer(runs.app, name="runs")
app.add_typer(history.app, name="history")
app.add_typer(sites.app, name="sites")
app.add_typer(store.app, name="store")
app.add_typer(machine.app, name="machine")
app.add_typer(workload.app, name="workload")
app.add_typer(device.app, name="device")
app.add_typer(consumption.app, name="consumption")


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as find_version

        typer.echo(f"foretell {find_version('foretell')}")
        raise typer.Exit


def main() -> None:
    """Run the command line; what a user can cause ends in one clear message and exit code 1, never a traceback."""
    try:
        app()
    except ForetellError as exc:
        typer.echo(clean_text(f"Error: {exc}"), err=True)  # it may quote a file or a store
        sys.exit(1)
    except KeyboardInterrupt:  # before or after typer listens for it
        sys.exit(130)
    except BrokenPipeError:  # the reader has gone, as in `foretell runs list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        why = f"Error: {where}{exc.strerror or exc}; check the path, its permissions and the free space"
        typer.echo(clean_text(why), err=True)
        sys.exit(1)
