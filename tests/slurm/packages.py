"""The Debian packages a cluster is made of, installed where that is possible."""

import os
import shutil
from pathlib import Path

from tests.packages import install_packages

PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
}
PLUGINS = ("slurm-wlm-mysql-plugin",)


def ensure_installed() -> str | None:
    """Install what is missing; the reason why there can be no cluster, if so."""
    if os.geteuid() != 0:
        return "a Slurm cluster of one's own needs root"
    install_packages(
        *PROGRAMS.values(), *PLUGINS, purpose="tests on a real Slurm cluster", until=lambda: not _find_missing()
    )
    missing = _find_missing()
    return f"{', '.join(missing)} cannot be installed here" if missing else None


def _find_missing() -> list[str]:
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    return missing + [package for package in PLUGINS if not _is_plugin_there(package)]


def _is_plugin_there(package: str) -> bool:
    return Path(f"/var/lib/dpkg/info/{package}.list").exists()
