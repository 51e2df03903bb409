"""The command ``foretell report``."""

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import (
    AppArgument,
    JsonOption,
    SetOption,
    SiteFileOption,
    StoreOption,
    find_app,
    find_site_files,
    find_store,
    parse_settings,
)
from foretell.cli._output import ForceOption, say, show_json, write_generated

EXAMPLES = "Example: foretell report myapp --site osc --set epochs=100 --output report.html"


def report(
    app: AppArgument = None,
    settings: SetOption = None,
    site: Annotated[str, typer.Option(help="Whose offers to show.")] = "local",
    site_file: SiteFileOption = None,
    output: Annotated[Path | None, typer.Option(help="Default: APP-report.html.")] = None,
    force: ForceOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put leaderboard, plots, offers and runs into one HTML page that needs no internet.

    Without --set the offers are for the full-scale configuration that was run last.
    """
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
