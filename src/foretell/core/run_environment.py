"""Environment variables of runs, names of files in their folders, and the environment that runs get."""

import os
from collections.abc import Iterable

SAMPLE = "sample.json"  # what the sampler of a job writes

RUN_ID = "FORETELL_RUN_ID"
RUN_DIRECTORY = "FORETELL_RUN_DIR"
OWNER = "FORETELL_OWNER"
CACHE = "FORETELL_CACHE"

_PREFIX = "FORETELL_"
# The folder of a run, and marks by which its processes are found.
OF_A_RUN = (RUN_DIRECTORY, RUN_ID, OWNER, "FORETELL_BATCH")
_NEEDED = {CACHE}  # where a sampler inside a job finds the benchmark of its node
# By which libpq, and so a store on PostgreSQL, finds its password.
_OF_THE_STORE = {"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLKEY"}


def build_environment(*, inherited: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a run; ``inherited`` are names that it gets although they are Foretell's own."""
    asked = set(inherited)
    return {name: value for name, value in os.environ.items() if name in asked or not _is_own(name)}


def _is_own(name: str) -> bool:
    return name in _OF_THE_STORE or (name.startswith(_PREFIX) and name not in _NEEDED)
