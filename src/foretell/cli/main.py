"""The command line: parses, calls the API once, prints. Heavy imports happen inside the command that needs them."""

import os
import sys
import warnings
from typing import NoReturn

import click

from foretell.cli._click import Entry, LazyGroup, install_completion, show_completion
from foretell.cli._output import clean_text
from foretell.core.errors import ForetellError
from foretell.core.warning import ExperimentalWarning

_INTERRUPTED = 130


def _show_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"foretell {version('foretell')}")
        ctx.exit()


def _set_verbosity(ctx: click.Context, _param: click.Parameter, times: int) -> None:
    if not times or ctx.resilient_parsing:
        return
    import logging

    class CleanFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return clean_text(super().format(record))  # names and paths may come from anywhere

    handler = logging.StreamHandler()
    handler.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.setLevel(logging.INFO if times == 1 else logging.DEBUG)
    ours = logging.getLogger("foretell")
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(handler.level)
    ctx.call_on_close(lambda: ours.removeHandler(handler))
    ctx.call_on_close(lambda: ours.setLevel(before))


# The module and summary of each command: --help imports none of them. A test compares the texts.
COMMANDS = {
    "init": Entry("foretell.cli.app_commands", "Write a commented foretell.yaml for a command."),
    "check": Entry(
        "foretell.cli.app_commands",
        "Report all mistakes in an app file, each with its line, and count its runs.",
    ),
    "generate": Entry(
        "foretell.cli.campaign_commands", "Make and measure the runs of an app file that are not stored yet."
    ),
    "status": Entry(
        "foretell.cli.campaign_commands",
        "Show the state of an app's runs, also those in Slurm, and store finished ones.",
    ),
    "cancel": Entry(
        "foretell.cli.campaign_commands",
        "Cancel an app's runs in Slurm; finished ones are stored, the others can be made again.",
    ),
    "build": Entry("foretell.cli.runtime_commands", "Fit and compare models on the stored runs, and store the best."),
    "predict": Entry(
        "foretell.cli.runtime_commands",
        "Predict the time and memory of a configuration, without running it.",
    ),
    "explain": Entry(
        "foretell.cli.runtime_commands", "Explain what a prediction depends on, and where its uncertainty comes from."
    ),
    "recommend": Entry(
        "foretell.cli.advice_commands",
        "Rank the allocations of a site for a configuration, and write the job script of the best.",
    ),
    "advise": Entry(
        "foretell.cli.advise_command",
        "Advise what to request for a training, from a model's code or a script and a budget.",
    ),
    "run": Entry(
        "foretell.cli.advice_commands",
        "Recommend a request, submit it and wait; request more of what ran out, and store the run.",
    ),
    "verify": Entry(
        "foretell.cli.advice_commands",
        "Run one configuration here, and compare the prediction with the measured run, which is stored.",
    ),
    "report": Entry(
        "foretell.cli.advice_commands",
        "Write one HTML page with the models, plots, offers and runs of an app; it needs no internet.",
    ),
    "observe": Entry(
        "foretell.cli.observe_command",
        "Sample a job while it runs: its bursts and idle times of compute and network.",
    ),
    "runs": Entry("foretell.cli.runs_commands", "List, show, export, import and delete stored runs."),
    "history": Entry(
        "foretell.cli.history_commands",
        "Import past jobs from a cluster's accounting, and report what requests wasted.",
    ),
    "sites": Entry("foretell.cli.sites_commands", "List, show and discover the sites where jobs can run."),
    "store": Entry("foretell.cli.runs_commands", "Create a store for yourself or for a group."),
    "machine": Entry("foretell.cli.device_commands", "Show this machine, and measure how fast it is."),
    "workload": Entry(
        "foretell.cli.workload_commands",
        "Read a training step from the code of a model, measure it here, predict it for a device.",
    ),
    "memory": Entry(
        "foretell.cli.memory_commands",
        "Predict the memory of a GPU that training or inference needs, what for, and where it fits.",
    ),
    "device": Entry(
        "foretell.cli.device_commands", "List the devices whose training steps can be predicted, and learn your own."
    ),
    "consumption": Entry(
        "foretell.cli.consumption_commands",
        "Predict what distributed training consumes (compute and network over time), and fit models to measurements.",
    ),
}


@click.group(
    "foretell",
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Start with: foretell init --command 'python train.py --epochs 100'",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version and exit.",
)
@click.option(
    "-v",
    "--verbose",
    count=True,
    show_default=False,
    expose_value=False,
    callback=_set_verbosity,
    help="Log to stderr; -vv also logs each program that is called.",
)
@click.option(
    "--install-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=install_completion,
    help="Install completion for your shell, and exit.",
)
@click.option(
    "--show-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_completion,
    help="Print the completion script for your shell, and exit.",
)
def app() -> None:
    """Predict what a job will need before it runs (time, memory, GPUs, cost), and write the request for it."""


def main() -> None:
    """Run the command line; errors that a user can cause end in one message and exit code 1, without a traceback."""
    warnings.simplefilter("ignore", ExperimentalWarning)  # it is for programs that call these functions
    try:
        sys.exit(app.main(prog_name="foretell", standalone_mode=False))
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except ForetellError as exc:
        _fail(str(exc))  # it may quote a file or a store
    except (KeyboardInterrupt, click.Abort):
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:  # the reader has gone, as in `foretell runs list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        _fail(f"{where}{exc.strerror or exc}; check the path, its permissions and the free space")


def _fail(why: str) -> NoReturn:
    click.echo(clean_text(f"Error: {why}"), err=True)
    sys.exit(1)
