"""The command ``foretell generate``."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli._common import (
    AccountOption,
    AppArgument,
    JsonOption,
    PartitionOption,
    SampleOption,
    SbatchOption,
    StoreOption,
    build_submission,
    find_app,
    find_store,
    parse_option,
    parse_optional,
)
from foretell.cli._output import Display, show, show_json

if TYPE_CHECKING:
    from foretell.campaigns.campaign_plan import CampaignResult

EXAMPLES = (
    "Examples: foretell generate --dry-run | foretell generate --budget 10m | foretell generate --retry-failed | "
    "foretell generate --adaptive --until 10% | foretell generate --runner slurm --partition cpu --account PAS1234"
)


def generate(
    app: AppArgument = None,
    budget: Annotated[str | None, typer.Option(help="Make only runs that fit this time, for example 10m.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Make failed runs again, too.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many runs at once; default: what the cores allow."),
    ] = None,
    adaptive: Annotated[
        bool,
        typer.Option("--adaptive", help="Make what tells most for its time first, and end when it no longer pays."),
    ] = False,
    until: Annotated[
        str | None, typer.Option(help="Adaptive, and end when predictions are this sure on average, for example 10%.")
    ] = None,
    runner: Annotated[
        str | None, typer.Option(help="Where to run: local or slurm; default: as the app file says, or local.")
    ] = None,
    partition: PartitionOption = None,
    account: AccountOption = None,
    option: SbatchOption = None,
    sample: SampleOption = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Stay until all runs have ended, those with Slurm or of other processes included."),
    ] = False,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="The program has changed, but its stored runs still count.")
    ] = False,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="Set the stored runs aside: the program is another one now.")
    ] = False,
    wait_quiet: Annotated[
        str,
        typer.Option(
            help="Wait up to so long until others leave this machine alone, and repeat runs they disturbed; or no.",
            envvar="FORETELL_WAIT_QUIET",
        ),
    ] = "1m",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the runs of an app file that are not stored yet, and measure them."""
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
            raise typer.Exit(1 if planned.obstacles else 0)
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
        raise typer.Exit(130)
    failed = result.failed + result.elsewhere_failed
    if failed and not result.completed + result.elsewhere_completed:
        raise typer.Exit(1)
