"""The commands of ``foretell sites``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli._click import Group, argument
from foretell.cli._options import PATH, json_option, site_file_option
from foretell.cli._output import note, show, show_json, write_text
from foretell.cli._places import find_site_files, find_site_folder
from foretell.core.errors import Mistake, OutputError, SpecError

if TYPE_CHECKING:
    from foretell.core.site import Site

sites = Group("sites", help="List, show and discover the sites where jobs can run.")


@sites.command("list", examples=["foretell sites list"])
@site_file_option
@json_option
def list_sites(
    site_file: tuple[Path, ...],
    as_json: bool,
) -> None:
    """List all sites."""
    from foretell.advice import site_lookup as api
    from foretell.advice.render import build_site_record, render_sites

    sites = api.list_sites(files=find_site_files(site_file))
    if as_json:
        show_json([build_site_record(site) for site in sites])
    else:
        show([render_sites(sites)])


@sites.command("show", examples=["foretell sites show osc"])
@argument("name", help="A site's name.")
@site_file_option
@json_option
def show_site(
    name: str,
    site_file: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Show a site's node types, limits and prices."""
    from foretell.advice import site_lookup as api
    from foretell.advice.render import build_site_record, render_site

    site = api.find_site(name, files=find_site_files(site_file))
    if as_json:
        show_json(build_site_record(site))
    else:
        show([render_site(site)])


@sites.command("discover", examples=["foretell sites discover --name campus"])
@click.option("--name", help="The site's name; default: the cluster's.")
@click.option("--cluster", help="Another cluster of the federation; default: this one.")
@click.option("--output", type=PATH, help="The site file; default: NAME.toml in ~/.config/foretell/sites.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
def discover_site(
    name: str | None,
    cluster: str | None,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a site file for this Slurm cluster; you fill in its prices."""
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
    _note_next_steps(site, path, found=output is None)


def _check_name(name: str) -> None:
    from foretell.advice.site_lookup import LOCAL
    from foretell.advice.sites import A_NAME, NAME

    if not NAME.fullmatch(name) or name == LOCAL:
        expected = f"{A_NAME}; not {LOCAL!r}, which is this machine"
        raise SpecError("options", [Mistake(place="--name", found=repr(name), expected=expected)])


def _note_next_steps(site: "Site", path: Path, *, found: bool) -> None:
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
