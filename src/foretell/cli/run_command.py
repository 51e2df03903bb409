"""The command ``foretell run``."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import (
    AccountOption,
    AppArgument,
    ExtrapolateOption,
    JsonOption,
    MaxTimeOption,
    PreferOption,
    RetryCostOption,
    RiskOption,
    SampleOption,
    SbatchOption,
    SetOption,
    SiteFileOption,
    SiteOption,
    StoreOption,
    build_submission,
    find_app,
    find_site_files,
    find_store,
    parse_optional,
    parse_settings,
)
from foretell.cli._output import Display, note, show, show_json

if TYPE_CHECKING:
    from foretell.advice.execution import JobRequest
    from foretell.core.prediction import Recommendation
    from foretell.core.run import Allocation

EXAMPLES = (
    "Examples: foretell run myapp --set epochs=100 --site mycluster --max-time 2h --max-cost 5 | "
    "foretell run --set n=4000 --dry-run"
)
_FEW = 3  # offers shown above a script


def run(
    app: AppArgument = None,
    settings: SetOption = None,
    site: SiteOption = "local",
    site_file: SiteFileOption = None,
    max_time: MaxTimeOption = None,
    max_cost: Annotated[str | None, typer.Option(help="The most it may cost, all attempts together.")] = None,
    prefer: PreferOption = "auto",
    time: Annotated[str | None, typer.Option(help="Ask for this time at first, not for what is recommended.")] = None,
    memory: Annotated[str | None, typer.Option(help="Ask for this memory at first, for example 4GB.")] = None,
    on_limit: Annotated[
        str,
        typer.Option(help="Where a request was too small: least-cost (the next that costs least), double, or stop."),
    ] = "least-cost",
    account: AccountOption = None,
    option: SbatchOption = None,
    sample: SampleOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the script that would be submitted, and stop.")
    ] = False,
    risk: RiskOption = None,
    retry_cost: RetryCostOption = None,
    extrapolate: ExtrapolateOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recommend a request, submit it, wait; ask for more of what ran out, and store what happened."""
    from foretell.advice import execution as api_execution
    from foretell.advice import site_lookup as api_places
    from foretell.advice.render import build_execution_record, render_execution
    from foretell.core.units import parse_bytes, parse_duration, parse_money, parse_share

    name = find_app(app)
    request = api_execution.JobRequest(
        configuration=parse_settings(settings),
        site=api_places.find_site(site, files=find_site_files(site_file)),
        max_time_s=parse_optional("--max-time", parse_duration, max_time),
        max_cost=parse_optional("--max-cost", parse_money, max_cost),
        prefer=prefer,
        risk=parse_optional("--risk", parse_share, risk),
        retry_cost=retry_cost,
        extrapolate=extrapolate,
        walltime_s=parse_optional("--time", parse_duration, time),
        memory_bytes=parse_optional("--memory", parse_bytes, memory),
        on_limit=on_limit,
        submission=build_submission(partition=None, account=account, options=option, sample=sample),
    )
    address = find_store(store, name)
    if dry_run:
        _show_preview(name, request, address, as_json=as_json)
        return
    display = Display() if not as_json else None
    with display or nullcontext():
        done = api_execution.run(
            name,
            request,
            store=address,
            on_progress=display.update if display else lambda _: None,
            on_start=_announce if not as_json else lambda *_: None,
        )
    if as_json:
        show_json(build_execution_record(done))
    else:
        show([render_execution(done)])
    if not done.completed:
        raise typer.Exit(1 if done.attempts else 130)


def _show_preview(name: str, request: "JobRequest", store: str, *, as_json: bool) -> None:
    from foretell.advice import execution as api
    from foretell.advice.render import build_recommendation_record, render_recommendation

    recommendation, script = api.preview(name, request, store=store)
    if as_json:
        show_json({**build_recommendation_record(recommendation), "script": script})
        return
    show([render_recommendation(recommendation, rows=_FEW)])
    typer.echo(script)


def _announce(recommendation: "Recommendation", asked: "Allocation") -> None:
    from foretell.advice.render import render_start

    note(render_start(recommendation, asked))
