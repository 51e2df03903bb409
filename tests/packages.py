"""Debian packages that tests need, installed where that is possible: one at a time, whoever else asks."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_ATTEMPTS = 4
_PAUSE_S = 10.0
_POLICY = Path("/usr/sbin/policy-rc.d")


def install_packages(*names: str, until: Callable[[], object]) -> None:
    """Install packages until what is wanted of them is there, if this machine lets us; no service is started."""
    if until() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    with _alone():
        # Somebody else on the machine may call apt-get, too, and its lock on the lists waits for nobody.
        for attempt in range(_ATTEMPTS):
            if until():
                return
            time.sleep(_PAUSE_S if attempt else 0.0)
            _install(names)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one worker after another install; the second may find all there."""
    with (Path(tempfile.gettempdir()) / "test-packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(names: tuple[str, ...]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    with _no_services():
        for words in (["update"], ["install", "-y", "--no-install-recommends", *names]):
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
