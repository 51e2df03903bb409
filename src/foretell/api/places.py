"""Sites by name: this machine, the catalogue, the user's own."""

from collections.abc import Collection
from datetime import date
from pathlib import Path

from foretell.entities.site import Site
from foretell.errors import NotFoundError
from foretell.machines.discover import build_site
from foretell.machines.local import LOCAL, build_local_site
from foretell.machines.sites import get_site
from foretell.machines.sites import list_sites as list_known_sites
from foretell.probes.machine import detect_machine
from foretell.probes.slurm.cluster import read_cluster


def find_site(name: str, *, files: Collection[Path] = ()) -> Site:
    """A site by its name: this machine, one of the catalogue, or one of the user's files.

    Raises:
        NotFoundError: if there is none of that name.
        SiteError: if a file has mistakes.
    """
    if name == LOCAL:
        return build_local_site(detect_machine())
    try:
        return get_site(name, extra_files=files)
    except NotFoundError as exc:
        if exc.kind != "site":
            raise
        hint = "Describe your own in a site file and pass --site-file."
        raise NotFoundError("site", name, known=(LOCAL, *exc.known), hint=hint) from None


def list_sites(*, files: Collection[Path] = ()) -> tuple[Site, ...]:
    """This machine, the catalogue, and the user's sites.

    Raises:
        SiteError: if a file has mistakes.
    """
    return (find_site(LOCAL), *list_known_sites(extra_files=files))


def discover_site(*, name: str | None = None, cluster: str | None = None) -> Site:
    """The Slurm cluster this machine belongs to, or the joined one of that name, as a site; prices are not known.

    Raises:
        SchedulerError: if Slurm is not there, does not answer, or no partition is open.
    """
    return build_site(read_cluster(cluster=cluster), name=name, as_of=date.today(), elsewhere=cluster is not None)
