"""The command ``foretell sites``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import JsonOption, SiteFileOption, find_site_files, find_site_folder
from foretell.cli._output import note, show, show_json, write_text
from foretell.core.errors import Mistake, OutputError, SpecError

if TYPE_CHECKING:
    from foretell.core.site import Site

app = typer.Typer(help="List, show and discover the sites jobs can be placed on.", no_args_is_help=True)


@app.command("list", epilog="Example: foretell sites list")
def list_sites(site_file: SiteFileOption = None, as_json: JsonOption = False) -> None:
    """List every site by name."""
    from foretell.advice import site_lookup as api
    from foretell.advice.render import build_site_record, render_sites

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
    from foretell.advice import site_lookup as api
    from foretell.advice.render import build_site_record, render_site

    site = api.find_site(name, files=find_site_files(site_file))
    if as_json:
        show_json(build_site_record(site))
    else:
        show([render_site(site)])


@app.command("discover", epilog="Example: foretell sites discover --name campus")
def discover_site(
    name: Annotated[
        str | None, typer.Option(help="The site's name; default: the cluster's.", show_default=False)
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Another cluster this one is joined with; default: this one.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="The site file; default: NAME.toml in ~/.config/foretell/sites.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a site file for the Slurm cluster here; its prices are left for you to fill in."""
    from foretell.advice import site_lookup as api
    from foretell.advice.render import build_site_record, render_site
    from foretell.advice.site_discovery import render_site_file

    site = api.discover_site(name=name, cluster=cluster)
    _check_name(site.name)
    path = output or find_site_folder() / f"{site.name}.toml"
    if path.exists() and not force:
        raise OutputError(f"{path} exists already; pass --force to replace it with all that was filled in, or --output")
    write_text(path, render_site_file(site))
    if as_json:
        show_json({"file": str(path), "site": build_site_record(site)})
        return
    show([render_site(site)])
    _tell_what_next(site, path, found=output is None)


def _check_name(name: str) -> None:
    from foretell.advice.site_keys import A_NAME, NAME
    from foretell.advice.site_lookup import LOCAL

    if not NAME.fullmatch(name) or name == LOCAL:
        expected = f"{A_NAME}; not {LOCAL!r}, which is this machine"
        raise SpecError("options", [Mistake(place="--name", found=repr(name), expected=expected)])


def _tell_what_next(site: "Site", path: Path, *, found: bool) -> None:
    from foretell.advice.site_discovery import list_unknown_memory
    from foretell.advice.sites import list_sites as list_shipped_sites

    note(f"Wrote {path}. Fill in what an hour costs: the lines with # under [sites.{site.name}.defaults].")
    unknown = list_unknown_memory(site)
    if unknown:
        note(f"Fill in the memory of {', '.join(unknown)}, too: Slurm does not know it.")
    if site.name in {shipped.name for shipped in list_shipped_sites()}:
        note(f"It takes the place of the site {site.name} that ships with Foretell; keep both with another --name.")
    named = "" if found else f" --site-file {path}"
    note(f"Then: foretell recommend APP --site {site.name}{named}")
