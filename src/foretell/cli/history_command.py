"""The command ``foretell history``."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import JsonOption, SiteFileOption, StoreOption, find_site_files, find_store, parse_optional
from foretell.cli._output import make_folder, note, open_console, show, show_json

app = typer.Typer(help="Learn from a cluster's own accounting, and show what requests wasted.", no_args_is_help=True)
SinceOption = Annotated[str | None, typer.Option(metavar="DATE", help="From this day on, such as 2025-01-31.")]
UntilOption = Annotated[str | None, typer.Option(metavar="DATE", help="Until before this day.")]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Rules that group jobs into applications (TOML).")
]
RowsOption = Annotated[int, typer.Option(min=1, help="Lines of the table to show.")]


@app.command(
    "import",
    epilog="Examples: foretell history import --since 2025-01-01 | foretell history import jobs.txt.gz",
)
def import_history(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Saved 'sacct --parsable2' texts, - for stdin; default: ask sacct."),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    user: Annotated[list[str] | None, typer.Option(help="Jobs of this user; repeatable. Default: yours.")] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="Jobs of all users you may see.")] = False,
    cluster: Annotated[str | None, typer.Option(help="The cluster asked, or that of files that do not tell.")] = None,
    rules: RulesOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read past jobs from accounting. Reading them again changes nothing; what was read is not read again."""
    from foretell.history import api
    from foretell.history.render import render_history_import
    from foretell.render.tables import build_line

    with open_console(stderr=True).status("Reading…") as status:
        result = api.import_history(
            files or (),
            since=parse_optional("--since", _read_day, since),
            until=parse_optional("--until", _read_day, until),
            users=user or (),
            all_users=all_users,
            cluster=cluster,
            rules=rules,
            store=find_store(store),
            on_progress=lambda step: status.update(build_line(f"Reading: {step}")),
        )
    if as_json:
        show_json(result)
    else:
        show([render_history_import(result)])


@app.command("group", epilog="Example: foretell history group --rules rules.toml")
def group_history(
    rules: RulesOption = None,
    rows: RowsOption = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Group all jobs anew by rules, which later imports follow; without any, by names and commands alone."""
    from foretell.history import api
    from foretell.history.render import render_history_apps
    from foretell.render.tables import build_line

    with open_console(stderr=True).status("Grouping…") as status:
        apps = api.group_history(
            rules, store=find_store(store), on_progress=lambda step: status.update(build_line(f"Grouping: {step}"))
        )
    if as_json:
        show_json(apps)
    else:
        show([render_history_apps(apps, rows=rows)])


@app.command("apps", epilog="Example: foretell history apps --rows 50")
def list_apps(rows: RowsOption = 20, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the applications that past jobs are grouped into; 'foretell build' takes their names."""
    from foretell.history import api
    from foretell.history.render import render_history_apps

    apps = api.list_history_apps(store=find_store(store))
    if as_json:
        show_json(apps)
    else:
        show([render_history_apps(apps, rows=rows)])


@app.command("report", epilog="Example: foretell history report --by app --site osc --plot waste.png")
def report(
    by: Annotated[str, typer.Option(help="What each line is of: user, account, app or partition.")] = "user",
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    account: Annotated[str | None, typer.Option(help="Only jobs of this account.")] = None,
    app_name: Annotated[str | None, typer.Option("--app", help="Only jobs of this application.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    site: Annotated[str | None, typer.Option(help="The site whose prices count; default: core-hours.")] = None,
    site_file: SiteFileOption = None,
    rows: RowsOption = 20,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it, as .png or .svg.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what past jobs requested against what they used, what it cost, and what less would have cost."""
    from foretell.advice import site_lookup as api_places
    from foretell.history import api as api_history
    from foretell.history.render import render_waste

    found = api_history.report_waste(
        by=by,
        user=user,
        account=account,
        app=app_name,
        since=parse_optional("--since", _read_day, since),
        until=parse_optional("--until", _read_day, until),
        site=None if site is None else api_places.find_site(site, files=find_site_files(site_file)),
        store=find_store(store),
    )
    if plot is not None:
        from foretell.history.plots import draw_waste
        from foretell.render.figures import save_figure

        make_folder(plot.parent)
        save_figure(draw_waste(found), plot)
    if as_json:
        show_json(found)
    else:
        show([render_waste(found, rows=rows)])
    if plot is not None:
        note(f"Wrote {plot}.")


def _read_day(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        raise ValueError("a day or moment such as 2025-01-31 or 2025-01-31T12:00") from None
