"""The command ``foretell advise``."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.cli._advise_options import job_options, length_options, parse_run, read_advice_options, run_options
from foretell.cli._click import LeadingCommand
from foretell.cli._options import (
    PATH,
    account_option,
    batch_option,
    build_step_options,
    build_submission,
    force_option,
    get_source,
    json_option,
    level_option,
    max_time_option,
    model_or_command_options,
    parse_settings,
    prefer_option,
    read_timeout,
    rows_option,
    sbatch_option,
    site_file_option,
    site_option,
    timeout_option,
    training_options,
)
from foretell.cli._output import check_plot, note, open_console, show, show_json, write_generated, write_plot
from foretell.cli._places import find_kept_folder
from foretell.core.errors import OutputError

if TYPE_CHECKING:
    from foretell.advice.advise_results import Advice
    from foretell.core.app import Submission


@click.command(
    "advise",
    cls=LeadingCommand,
    examples=[
        "foretell advise train.py:build_model --input 128,3,224,224 --epochs 90 --samples 1281167 --site osc "
        "--max-time 24h --max-cost 40",
        "foretell advise --site osc --max-cost 40 -- python train.py --epochs 90 --batch-size 128",
        "foretell advise --site osc --then-run -- python train.py --epochs 90",
        "foretell advise --compare osc,tacc,aws,my-site.toml -- python train.py --epochs 90",
    ],
)
@model_or_command_options
@batch_option
@length_options
@training_options
@site_option
@click.option("--compare", metavar="SITES", help="Several sites instead, by names or files: osc,tacc,aws,my-site.toml.")
@site_file_option
@max_time_option
@click.option("--max-cost", help="Limit of the cost.")
@prefer_option
@job_options
@click.option(
    "--layout", help="Only this way to share a step: ddp, fsdp, tp=4,pp=2...; default: all, or the script's own."
)
@click.option("--cpu", metavar="DEVICE", help="The model for nodes without GPUs: learned here, or 'EPYC core'.")
@click.option("--run", "job_command", metavar="COMMAND", help="What the job of a model runs; default: its file.")
@account_option
@sbatch_option
@click.option("--output", type=PATH, help="The job script; default: job.sbatch, or job.sh without a scheduler.")
@force_option
@rows_option(12, "Number of offers to show.")
@click.option("--plot", type=PATH, metavar="FILE", help="Plot time against cost, as .png or .svg.")
@run_options
@level_option
@click.option("--risk", default="5%", help="Chance that the walltime is too short, and that a GPU's memory is.")
@timeout_option
@json_option
def advise(
    source: str | None,
    command: tuple[str, ...],
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    batch: int | None,
    job_command: str | None,
    account: str | None,
    option: tuple[str, ...],
    output: Path | None,
    force: bool,
    rows: int,
    plot: Path | None,
    timeout: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Advise what to request for a training, from a model's code or a script and a budget.

    After --, the command that starts your training script: its first steps are recorded here, without a GPU.
    """
    from foretell.advice import advise_api as api

    check_plot(plot)
    training = {name: given.pop(name) for name in _TRAINING if name in given}
    submission = build_submission(partition=None, account=account, options=option)
    _check_submission(submission)
    run = parse_run(job_command)
    common = read_advice_options(given)
    with _LateStatus() as status:
        if command:
            timeout_s = read_timeout(source, timeout)
            found = api.advise_script(command, timeout_s=timeout_s, on_progress=status.update, **common)
        else:
            found = api.advise(
                get_source(source),
                inputs,
                arguments=parse_settings(settings),
                options=build_step_options(**training),
                batch=batch,
                command=run,
                on_progress=status.update,
                **common,
            )
    path = output or Path("job.sh" if found.best.site.scheduler == "shell" else "job.sbatch")
    kept = _write(found, path, submission, force=force)
    _show(found, path=None if kept else path, rows=rows, plot=plot, as_json=as_json)
    if kept:  # not 0: who writes "&& sbatch job.sbatch" behind it must not submit the file that was there before
        raise kept


_TRAINING = (
    "loss", "optimizer", "implementation", "precision", "channels_last", "compile", "accumulation", "checkpointing",
    "recompute", "lora", "frozen",
)  # fmt: skip


def _check_submission(submission: "Submission") -> None:
    """Refuse what cannot be written in a job script before anything is predicted."""
    from foretell.schedulers.slurm.job_array import render_header

    account = {"account": submission.account} if submission.account else {}
    render_header({**account, **submission.options})


class _LateStatus:
    """A line that says what is done, where that takes longer than two seconds."""

    _LATE_S = 2.0

    def __init__(self) -> None:
        self._status = open_console(stderr=True).status("Starting…")
        self._timer = threading.Timer(self._LATE_S, self._status.start)
        self._timer.daemon = True

    def __enter__(self) -> "_LateStatus":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._status.stop()

    def update(self, text: str) -> None:
        """Say what is done now."""
        self._status.update(text)


def _write(found: "Advice", path: Path, submission: "Submission", *, force: bool) -> OutputError | None:
    """Why the script was not written, if so; the advice is printed anyway.

    What was advised is kept for each script of a scheduler, so that the job's usage corrects the next advice.
    """
    from foretell.advice.advised_jobs import build_advised_job, describe_advised, keep_advised_job
    from foretell.advice.training_script import render_training_script

    site, named, remarks = found.best.site, dict(submission.options), tuple[str, ...]()
    advised = build_advised_job(found) if site.scheduler != "shell" else None
    if advised is not None:
        named |= {"job-name": advised.name}
        remarks = describe_advised(advised)
    script = render_training_script(
        found.picked, found.job, site, account=submission.account, options=named, remarks=remarks
    )
    try:
        write_generated(path, script, force=force)
        if advised is not None:
            keep_advised_job(advised, find_kept_folder())
    except OutputError as exc:
        return exc
    return None


def _show(found: "Advice", *, path: Path | None, rows: int, plot: Path | None, as_json: bool) -> None:
    from foretell.advice.advise_records import build_advice_record
    from foretell.advice.render_advise import render_advice

    if plot is not None:
        from foretell.advice.plots import draw_offers

        write_plot(draw_offers(found.best.recommend(found.job.name)), plot)
    if as_json:
        show_json({**build_advice_record(found), "script": None if path is None else str(path)})
    else:
        show([render_advice(found, rows=rows)])
    if plot is not None:
        note(f"Wrote {plot}.")
    if path is not None and not as_json:
        start = "bash" if found.best.site.scheduler == "shell" else "sbatch"
        note(f"Wrote {path}; start it with: {start} {path}")
