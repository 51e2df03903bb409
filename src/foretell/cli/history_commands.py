"""The commands of ``foretell history``."""

from datetime import datetime
from pathlib import Path

import click

from foretell.cli._click import Group, argument
from foretell.cli._options import PATH, json_option, parse_optional, rows_option, site_file_option, store_option
from foretell.cli._output import check_plot, note, open_console, show, show_json, write_plot
from foretell.cli._places import find_site_files, find_store

since_option = click.option("--since", metavar="DATE", help="From this day on, for example 2025-01-31.")
until_option = click.option("--until", metavar="DATE", help="Before this day.")
rules_option = click.option(
    "--rules", type=PATH, metavar="FILE", help="Rules that group jobs into applications (TOML)."
)

history = Group("history", help="Import past jobs from a cluster's accounting, and report what requests wasted.")


@history.command(
    "import", examples=["foretell history import --since 2025-01-01", "foretell history import jobs.txt.gz"]
)
@argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    help="Saved output of 'sacct --parsable2', - for stdin; default: call sacct.",
)
@since_option
@until_option
@click.option("--user", multiple=True, help="Jobs of this user; repeatable; default: you.")
@click.option("--all-users", is_flag=True, help="Jobs of all users you may see.")
@click.option("--cluster", help="The cluster to query, or of files that do not name one.")
@rules_option
@store_option
@json_option
def import_history(
    files: tuple[str, ...],
    since: str | None,
    until: str | None,
    user: tuple[str, ...],
    all_users: bool,
    cluster: str | None,
    rules: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Import past jobs from accounting. Importing a job twice changes nothing."""
    from foretell.core.render.tables import build_line
    from foretell.history import api
    from foretell.history.render import render_history_import

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


@history.command("group", examples=["foretell history group --rules rules.toml"])
@rules_option
@rows_option(20)
@store_option
@json_option
def group_history(
    rules: Path | None,
    rows: int,
    store: str | None,
    as_json: bool,
) -> None:
    """Group all jobs again by rules, which later imports use; without rules, by names and commands."""
    from foretell.core.render.tables import build_line
    from foretell.history import api
    from foretell.history.render import render_history_apps

    with open_console(stderr=True).status("Grouping…") as status:
        apps = api.group_history(
            rules, store=find_store(store), on_progress=lambda step: status.update(build_line(f"Grouping: {step}"))
        )
    if as_json:
        show_json(apps)
    else:
        show([render_history_apps(apps, rows=rows)])


@history.command("apps", examples=["foretell history apps --rows 50"])
@rows_option(20)
@store_option
@json_option
def list_apps(
    rows: int,
    store: str | None,
    as_json: bool,
) -> None:
    """List the applications of past jobs; 'foretell build' accepts their names."""
    from foretell.history import api
    from foretell.history.render import render_history_apps

    apps = api.list_history_apps(store=find_store(store))
    if as_json:
        show_json(apps)
    else:
        show([render_history_apps(apps, rows=rows)])


@history.command("report", examples=["foretell history report --by app --site osc --plot waste.png"])
@click.option("--by", default="user", help="One line per user, account, app or partition.")
@click.option("--user", help="Only jobs of this user.")
@click.option("--account", help="Only jobs of this account.")
@click.option("--app", "app_name", help="Only jobs of this application.")
@since_option
@until_option
@click.option("--site", help="The site whose prices are used; default: core-hours.")
@site_file_option
@rows_option(20)
@click.option("--plot", type=PATH, metavar="FILE", help="Plot it, as .png or .svg.")
@store_option
@json_option
def report(
    by: str,
    user: str | None,
    account: str | None,
    app_name: str | None,
    since: str | None,
    until: str | None,
    site: str | None,
    site_file: tuple[Path, ...],
    rows: int,
    plot: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Compare what past jobs requested with what they used, and what smaller requests would have cost."""
    from foretell.advice import site_lookup as api_places
    from foretell.history import api as api_history
    from foretell.history.render import render_waste

    check_plot(plot)
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

        write_plot(draw_waste(found), plot)
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
