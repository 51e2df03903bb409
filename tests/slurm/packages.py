"""The Debian packages a cluster is made of, installed where that is possible."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
}
PLUGINS = ("slurm-wlm-mysql-plugin",)
_ATTEMPTS = 4
_PAUSE_S = 10.0
_POLICY = Path("/usr/sbin/policy-rc.d")


def ensure_installed() -> str | None:
    """Install what is missing; the reason why there can be no cluster, if so."""
    if os.geteuid() != 0:
        return "a Slurm cluster of one's own needs root"
    if _find_missing() and shutil.which("apt-get"):
        with _alone():
            _install_missing()
    missing = _find_missing()
    return f"{', '.join(missing)} cannot be installed here" if missing else None


def _find_missing() -> list[str]:
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    return missing + [package for package in PLUGINS if not _is_plugin_there(package)]


def _is_plugin_there(package: str) -> bool:
    return Path(f"/var/lib/dpkg/info/{package}.list").exists()


@contextmanager
def _alone() -> Iterator[None]:
    """Let one worker after another install; the second finds all there."""
    with (Path(tempfile.gettempdir()) / "slurm-packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_missing() -> None:
    # Tests of other parts may call apt-get at the same time, and its lock on the lists waits for nobody.
    for _ in range(_ATTEMPTS):
        if not _find_missing():
            return
        _install()
        if _find_missing():
            time.sleep(_PAUSE_S)


def _install() -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    with _no_services():
        for words in (["update"], ["install", "-y", "--no-install-recommends", *PROGRAMS.values(), *PLUGINS]):
            subprocess.run([*apt, *words], env=environment, check=False, capture_output=True)


@contextmanager
def _no_services() -> Iterator[None]:
    """Keep the packages from starting services of their own, unless the machine has a rule about that."""
    if _POLICY.exists():
        yield
        return
    with tempfile.NamedTemporaryFile("w", dir=_POLICY.parent, delete=False) as rule:
        rule.write("#!/bin/sh\nexit 101\n")
    Path(rule.name).chmod(0o755)
    Path(rule.name).rename(_POLICY)
    try:
        yield
    finally:
        _POLICY.unlink()
