"""The commands ``foretell generate``, ``status`` and ``cancel``."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from foretell.cli._click import command
from foretell.cli._options import (
    account_option,
    app_argument,
    build_submission,
    json_option,
    parse_option,
    parse_optional,
    partition_option,
    sample_option,
    sbatch_option,
    store_option,
)
from foretell.cli._output import Display, show, show_json
from foretell.cli._places import find_app, find_store

if TYPE_CHECKING:
    from foretell.campaigns.campaign_plan import CampaignResult


@command(
    examples=[
        "foretell generate --dry-run",
        "foretell generate --budget 10m",
        "foretell generate --retry-failed",
        "foretell generate --adaptive --until 10%",
        "foretell generate --runner slurm --partition cpu --account PAS1234",
    ]
)
@app_argument
@click.option("--budget", help="Make only runs that fit into this time, for example 10m.")
@click.option("--dry-run", is_flag=True, help="Print the plan, and stop.")
@click.option("--retry-failed", is_flag=True, help="Also repeat failed runs.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Maximum number of runs at a time; default: as many as the cores allow."
)
@click.option(
    "--adaptive", is_flag=True, help="Make the most informative runs first, and stop when more no longer pay."
)
@click.option("--until", help="Adaptive, and stop when intervals are this narrow on average, for example 10%.")
@click.option("--runner", help="local or slurm; default: as in the app file, or local.")
@partition_option
@account_option
@sbatch_option
@sample_option
@click.option(
    "--wait", is_flag=True, help="Wait until all runs have ended, also those in Slurm and of other processes."
)
@click.option("--keep-runs", is_flag=True, help="Keep using the stored runs although the program has changed.")
@click.option("--start-over", is_flag=True, help="Set the stored runs aside, because the program has changed.")
@click.option(
    "--wait-quiet",
    default="1m",
    envvar="FORETELL_WAIT_QUIET",
    help="Wait up to this time for an idle machine, and repeat disturbed runs; or no.",
)
@store_option
@json_option
def generate(
    app: str | None,
    budget: str | None,
    dry_run: bool,
    retry_failed: bool,
    jobs: int | None,
    adaptive: bool,
    until: str | None,
    runner: str | None,
    partition: str | None,
    account: str | None,
    option: tuple[str, ...],
    sample: bool,
    wait: bool,
    keep_runs: bool,
    start_over: bool,
    wait_quiet: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Make and measure the runs of an app file that are not stored yet."""
    from foretell.campaigns import api
    from foretell.campaigns.render import build_plan_record, build_result_record, render_campaign_result, render_plan
    from foretell.core.units import parse_duration, parse_share

    name = find_app(app)
    asked: dict[str, Any] = {
        "store": find_store(store, name),
        "budget_s": parse_optional("--budget", parse_duration, budget),
        "retry_failed": retry_failed,
        "jobs": jobs,
        "adaptive": adaptive,
        "until": parse_optional("--until", parse_share, until),
        "runner": runner,
        "submission": build_submission(partition=partition, account=account, options=option, sample=sample),
        "keep_runs": keep_runs,
        "start_over": start_over,
    }
    quiet_s = 0.0 if wait_quiet == "no" else parse_option("--wait-quiet", parse_duration, wait_quiet)
    planned = api.plan(name, **asked) if dry_run or not as_json else None
    if planned:
        if as_json:
            show_json(build_plan_record(planned))
        else:
            show([render_plan(planned)])
        if dry_run:
            raise click.exceptions.Exit(1 if planned.obstacles else 0)
    display = Display() if not as_json else None
    with display or nullcontext():
        on_progress = display.update if display else lambda _: None
        result = api.generate(name, **asked, wait=wait, wait_quiet_s=quiet_s, on_progress=on_progress)
    if as_json:
        show_json(build_result_record(result))
    elif not result.is_idle or (planned and planned.specs):  # else the plan has said it
        show([render_campaign_result(result)])
    _exit_as(result)


def _exit_as(result: "CampaignResult") -> None:
    if result.stopped:
        raise click.exceptions.Exit(130)
    failed = result.failed + result.elsewhere_failed
    if failed and not result.completed + result.elsewhere_completed:
        raise click.exceptions.Exit(1)


@command(examples=["foretell status", "foretell status myapp --json"])
@app_argument
@store_option
@json_option
def status(
    app: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the state of an app's runs, also those in Slurm, and store finished ones."""
    from foretell.campaigns import api
    from foretell.campaigns.render import render_status

    name = find_app(app)
    found = api.status(name, store=find_store(store, name))
    if as_json:
        show_json(found)
    else:
        show([render_status(found)])


@command(examples=["foretell cancel myapp"])
@app_argument
@store_option
@json_option
def cancel(
    app: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Cancel an app's runs in Slurm; finished ones are stored, the others can be made again."""
    from foretell.campaigns import api
    from foretell.campaigns.render import render_cancellation

    name = find_app(app)
    done = api.cancel(name, store=find_store(store, name))
    if as_json:
        show_json(done)
    else:
        show([render_cancellation(done)])
