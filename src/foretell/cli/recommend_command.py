"""The command ``foretell recommend``."""

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import (
    AppArgument,
    ExtrapolateOption,
    JsonOption,
    LevelOption,
    MaxTimeOption,
    PreferOption,
    RetryCostOption,
    RiskOption,
    SetOption,
    SiteFileOption,
    SiteOption,
    StoreOption,
    find_app,
    find_site_files,
    find_store,
    parse_option,
    parse_optional,
    parse_settings,
)
from foretell.cli._output import ForceOption, note, show, show_json, write_generated
from foretell.core.errors import OutputError

EXAMPLES = "Example: foretell recommend myapp --set epochs=100 --site osc --max-time 2h --max-cost 5"


def recommend(
    app: AppArgument = None,
    settings: SetOption = None,
    site: SiteOption = "local",
    site_file: SiteFileOption = None,
    max_time: MaxTimeOption = None,
    max_cost: Annotated[str | None, typer.Option(help="The most it may cost.")] = None,
    prefer: PreferOption = "auto",
    account: Annotated[str | None, typer.Option(help="The account to charge, for the script.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="The job script; default: job.sbatch, or job.sh for local.")
    ] = None,
    force: ForceOption = False,
    rows: Annotated[int, typer.Option(min=1, help="Offers to show.")] = 12,
    level: LevelOption = "90%",
    risk: RiskOption = None,
    retry_cost: RetryCostOption = None,
    extrapolate: ExtrapolateOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank what a site offers for a configuration, pick, and write the job script."""
    from foretell.advice import api as api_advice
    from foretell.advice import policy as advisor_policy
    from foretell.advice import site_lookup as api_places
    from foretell.advice.render import build_recommendation_record, render_recommendation
    from foretell.core.units import parse_duration, parse_money, parse_share

    name = find_app(app)
    address = find_store(store, name)
    place = api_places.find_site(site, files=find_site_files(site_file))
    recommendation = api_advice.recommend(
        name,
        parse_settings(settings),
        site=place,
        policy=advisor_policy.choose_policy(
            max_time_s=parse_optional("--max-time", parse_duration, max_time),
            max_cost=parse_optional("--max-cost", parse_money, max_cost),
            prefer=prefer,
        ),
        store=address,
        level=parse_option("--level", parse_share, level),
        risk=parse_optional("--risk", parse_share, risk),
        retry_cost=retry_cost,
        extrapolate=extrapolate,
    )
    script = api_advice.render_script(name, recommendation.picked, place, store=address, account=account)
    path = output or Path("job.sh" if place.scheduler == "shell" else "job.sbatch")
    kept = _write(path, script, force=force)
    if as_json:
        show_json({**build_recommendation_record(recommendation), "script": None if kept else str(path)})
    else:
        show([render_recommendation(recommendation, rows=rows)])
    if kept:  # not 0: who writes "&& sbatch job.sbatch" behind it must not submit the file that was there before
        raise kept
    if as_json:
        return
    start = "bash" if place.scheduler == "shell" else "sbatch"
    note(f"Wrote {path}; start it with: {start} {path}")


def _write(path: Path, script: str, *, force: bool) -> OutputError | None:
    """Why the script was not written, if so; the recommendation is worth printing all the same."""
    try:
        write_generated(path, script, force=force)
    except OutputError as exc:
        return exc
    return None
