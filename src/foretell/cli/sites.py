"""The command ``foretell sites``."""

from typing import Annotated

import typer

from foretell.cli._common import JsonOption, SiteFileOption, find_site_files, show, show_json

app = typer.Typer(help="List and show the sites jobs can be placed on.", no_args_is_help=True)


@app.command("list", epilog="Example: foretell sites list")
def list_sites(site_file: SiteFileOption = None, as_json: JsonOption = False) -> None:
    """List every site by name."""
    from foretell import api
    from foretell.reports.records import build_site_record
    from foretell.reports.text_sites import render_sites

    sites = api.list_sites(files=find_site_files(site_file))
    if as_json:
        show_json([build_site_record(site) for site in sites])
    else:
        show([render_sites(sites)])


@app.command("show", epilog="Example: foretell sites show osc")
def show_site(
    name: Annotated[str, typer.Argument(help="A site's name.")],
    site_file: SiteFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a site's node types, limits and prices."""
    from foretell import api
    from foretell.reports.records import build_site_record
    from foretell.reports.text_sites import render_site

    site = api.find_site(name, files=find_site_files(site_file))
    if as_json:
        show_json(build_site_record(site))
    else:
        show([render_site(site)])
