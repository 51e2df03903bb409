"""Debian packages that tests need: installed as root on Debian and Ubuntu, one process at a time, announced first."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from _pytest.capture import CaptureManager

_ATTEMPTS = 4
_PAUSE_S = 10.0
_POLICY = Path("/usr/sbin/policy-rc.d")
_captures: list[CaptureManager] = []


def install_packages(*names: str, purpose: str, until: Callable[[], object]) -> None:
    """Install packages until a condition holds, where that is possible; no service is started."""
    if until() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    with _alone():
        # Another process on the machine may use apt-get: it does not wait for the lock on the package lists.
        for attempt in range(_ATTEMPTS):
            if until():
                return
            if attempt == 0:
                announce(f"Installing Debian packages for {purpose}: {' '.join(names)}")
            time.sleep(_PAUSE_S if attempt else 0.0)
            _install(names)


def announce_through(capture: CaptureManager) -> None:
    """Let announcements reach the terminal although pytest captures what tests print."""
    _captures[:] = [capture]


def announce(line: str) -> None:
    """Print a line on standard error, on the terminal also from a test."""
    with _captures[0].global_and_fixture_disabled() if _captures else nullcontext():
        print(line, file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def _alone() -> Iterator[None]:
    """Let one worker after another install; the second may find everything installed."""
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
