"""The commands ``foretell recommend``, ``run``, ``verify`` and ``report``."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli._click import command
from foretell.cli._options import (
    PATH,
    account_option,
    app_argument,
    build_submission,
    extrapolate_option,
    force_option,
    json_option,
    level_option,
    max_time_option,
    parse_option,
    parse_optional,
    parse_settings,
    prefer_option,
    retry_cost_option,
    risk_option,
    sample_option,
    sbatch_option,
    set_option,
    site_file_option,
    site_option,
    store_option,
)
from foretell.cli._output import (
    Display,
    check_plotting,
    compute_with_one_thread,
    note,
    open_console,
    say,
    show,
    show_json,
    write_generated,
)
from foretell.cli._places import find_app, find_site_files, find_store
from foretell.core.errors import OutputError

if TYPE_CHECKING:
    from foretell.advice.execution import JobRequest
    from foretell.core.prediction import Recommendation
    from foretell.core.run import Allocation


@command(examples=["foretell recommend myapp --set epochs=100 --site osc --max-time 2h --max-cost 5"])
@app_argument
@set_option
@site_option
@site_file_option
@max_time_option
@click.option("--max-cost", help="Limit of the cost.")
@prefer_option
@click.option("--account", help="The account to charge, in the script.")
@click.option("--output", type=PATH, help="The job script; default: job.sbatch, or job.sh for local.")
@force_option
@click.option("--rows", type=click.IntRange(min=1), default=12, help="Number of offers to show.")
@level_option
@risk_option
@retry_cost_option
@extrapolate_option
@store_option
@json_option
def recommend(
    app: str | None,
    settings: tuple[str, ...],
    site: str,
    site_file: tuple[Path, ...],
    max_time: str | None,
    max_cost: str | None,
    prefer: str,
    account: str | None,
    output: Path | None,
    force: bool,
    rows: int,
    level: str,
    risk: str | None,
    retry_cost: float | None,
    extrapolate: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Rank the allocations of a site for a configuration, and write the job script of the best."""
    compute_with_one_thread()
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
    """Why the script was not written, if so; the recommendation is printed anyway."""
    try:
        write_generated(path, script, force=force)
    except OutputError as exc:
        return exc
    return None


_FEW = 3  # offers shown above a script


@command(
    examples=[
        "foretell run myapp --set epochs=100 --site mycluster --max-time 2h --max-cost 5",
        "foretell run --set n=4000 --dry-run",
    ]
)
@app_argument
@set_option
@site_option
@site_file_option
@max_time_option
@click.option("--max-cost", help="Limit of the cost of all attempts together.")
@prefer_option
@click.option("--time", help="Request this time first, instead of the recommended one.")
@click.option("--memory", help="Request this memory first, for example 4GB.")
@click.option(
    "--on-limit",
    default="least-cost",
    help="After a request that was too small: least-cost (the next of least expected cost), double, or stop.",
)
@account_option
@sbatch_option
@sample_option
@click.option("--dry-run", is_flag=True, help="Show the script that would be submitted, and stop.")
@risk_option
@retry_cost_option
@extrapolate_option
@store_option
@json_option
def run(
    app: str | None,
    settings: tuple[str, ...],
    site: str,
    site_file: tuple[Path, ...],
    max_time: str | None,
    max_cost: str | None,
    prefer: str,
    time: str | None,
    memory: str | None,
    on_limit: str,
    account: str | None,
    option: tuple[str, ...],
    sample: bool,
    dry_run: bool,
    risk: str | None,
    retry_cost: float | None,
    extrapolate: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Recommend a request, submit it and wait; request more of what ran out, and store the run."""
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
        raise click.exceptions.Exit(1 if done.attempts else 130)


def _show_preview(name: str, request: "JobRequest", store: str, *, as_json: bool) -> None:
    from foretell.advice import execution as api
    from foretell.advice.render import build_recommendation_record, render_recommendation

    recommendation, script = api.preview(name, request, store=store)
    if as_json:
        show_json({**build_recommendation_record(recommendation), "script": script})
        return
    show([render_recommendation(recommendation, rows=_FEW)])
    click.echo(script)


def _announce(recommendation: "Recommendation", asked: "Allocation") -> None:
    from foretell.advice.render import render_start

    note(render_start(recommendation, asked))


@command(examples=["foretell verify --set epochs=40 --set batch_size=64"])
@app_argument
@set_option
@click.option("--cores", type=click.IntRange(min=1), help="Cores; default: as in most runs.")
@store_option
@json_option
def verify(
    app: str | None,
    settings: tuple[str, ...],
    cores: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Run one configuration here, and compare the prediction with the measured run, which is stored."""
    from foretell.advice import verification as api
    from foretell.advice.render import build_verification_record, render_verification

    name = find_app(app)
    with open_console(stderr=True).status("Running it…"):
        verification = api.verify(name, parse_settings(settings), store=find_store(store, name), cores=cores)
    if as_json:
        show_json(build_verification_record(verification))
    else:
        show([render_verification(verification)])
    if verification.run.state != "completed":
        raise click.exceptions.Exit(1)


@command(examples=["foretell report myapp --site osc --set epochs=100 --output report.html"])
@app_argument
@set_option
@click.option("--site", default="local", help="The site whose offers are shown.")
@site_file_option
@click.option("--output", type=PATH, help="The page to write; default: APP-report.html.")
@force_option
@store_option
@json_option
def report(
    app: str | None,
    settings: tuple[str, ...],
    site: str,
    site_file: tuple[Path, ...],
    output: Path | None,
    force: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Write one HTML page with the models, plots, offers and runs of an app; it needs no internet.

    Without --set, the offers are for the full-scale configuration of the newest run.
    """
    check_plotting("the report page")
    from foretell.advice import site_lookup as api_places
    from foretell.advice import verification as api_proof
    from foretell.advice.report_page import render_page

    name = find_app(app)
    place = api_places.find_site(site, files=find_site_files(site_file))
    content = api_proof.summarise(name, parse_settings(settings), site=place, store=find_store(store, name))
    path = output or Path(f"{content.app.name}-report.html")
    write_generated(
        path,
        render_page(
            app=content.app,
            card=content.card,
            runs=content.runs,
            counts=content.counts,
            recommendation=content.recommendation,
            created_at=content.created_at,
        ),
        force=force,
    )
    if as_json:
        show_json({"app": content.app.name, "file": str(path)})
    else:
        say(f"Wrote {path}.")
