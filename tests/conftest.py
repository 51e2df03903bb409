import atexit
import getpass
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from lab.links import can_shape
from tests.packages import announce_through, install_packages

pytest_plugins = ["tests.slurm.fixtures"]

# The same examples each time: a test that fails for somebody else must fail here, too.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


# Cores are shared with every other process of this user; tests that run side by side do not wait for each other.
os.environ["FORETELL_WAIT_QUIET"] = "no"  # nor for a quiet machine
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="foretell-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)

# A shell's background jobs ignore these, and so would every program started from here. One that is handled, if only by
# nothing, is as it was for this process and as usual for those.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    if capture := config.pluginmanager.getplugin("capturemanager"):
        announce_through(capture)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> Any:
        """What ``--json`` printed."""
        assert self.out, self.err
        return json.loads(self.out)


@pytest.fixture(scope="session")
def foretell() -> Callable[..., Outcome]:
    """The command line as its users call it, without the wait for a new Python."""
    return _run_foretell


def _run_foretell(*words: str, folder: Path, environment: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    """Run ``foretell WORDS`` in a folder, with no store, sites or terminal but what the environment names."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, _build_environment(folder, environment), clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", ["foretell", *words]))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO()))
        stack.enter_context(chdir(folder))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        code = _call_main()
    return Outcome(code=code, out=_read(out), err=_read(err))


def _build_environment(folder: Path, extra: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FORETELL_") or name == "FORETELL_WAIT_QUIET"
    }
    homes = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder / "cache")}
    return {**kept, "COLUMNS": "100", **homes, **extra}


def _call_main() -> int:
    from foretell.cli.main import main

    try:
        main()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    return 0


def _read(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may read; pytest's own are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """Somebody who may not write what is ours: permissions mean nothing to root."""

    @contextmanager
    def become_nobody() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return become_nobody


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A throwaway PostgreSQL server on a unix socket, as the folder of that socket.

    It believes everybody who they are, but asks the user ``careful`` for a password.
    """
    server = PostgresServer()
    server.start()
    try:
        yield str(server.folder)
    finally:
        server.stop()
        shutil.rmtree(server.folder)


@pytest.fixture
def restartable_postgres() -> "Iterator[PostgresServer]":
    """A server of its own for a test that stops and starts it."""
    server = PostgresServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder)


class PostgresServer:
    """A PostgreSQL server with its data in a folder of its own, and its socket there."""

    def __init__(self) -> None:
        self._programs = _find_postgres()
        # Not below pytest's own folder: a socket's path is short, and the server may run as another user.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.url = f"postgresql://test@/postgres?host={self.folder}"
        self._user = "postgres" if os.geteuid() == 0 else getpass.getuser()
        self._data = self.folder / "data"
        shutil.chown(self.folder, self._user)
        trusting = ("-U", "test", "--auth=trust", "--no-sync", "--locale=C.UTF-8")
        _run_as(self._user, self._programs / "initdb", "-D", self._data, *trusting)
        rules = self._data / "pg_hba.conf"
        rules.write_text("local all careful scram-sha-256\n" + rules.read_text())

    def start(self) -> None:
        options = "-c listen_addresses='' -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
        self._control("-l", self.folder / "log", "-o", f"-k {self.folder} {options}", "start")

    def stop(self, mode: str = "immediate") -> None:
        """``immediate`` forgets the last commits, because nothing here waits for the disk; ``fast`` does not."""
        self._control("-m", mode, "stop")

    def _control(self, *words: str | Path) -> None:
        _run_as(self._user, self._programs / "pg_ctl", "-s", "-w", "-D", self._data, *words)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """An empty database of its own; in truth a schema, because a database takes a third of a second to create."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(host=postgres_server, user="test", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"postgresql://test@/postgres?host={postgres_server}&options=-csearch_path%3D{name}"


@pytest.fixture(scope="session")
def network_namespaces() -> None:
    """For tests that make networks of their own; with the tools installed where that is possible."""
    install_packages("iproute2", purpose="tests with shaped network links", until=can_shape)
    if can_shape():
        return
    reason = "making network namespaces needs root on Linux, and iproute2"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _find_postgres() -> Path:
    install_packages("postgresql", purpose="tests on a PostgreSQL server", until=_find_installed_postgres)
    found = _find_installed_postgres()
    if found is not None:
        return found
    reason = "PostgreSQL (initdb, pg_ctl) is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _find_installed_postgres() -> Path | None:
    on_path = shutil.which("initdb")
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    candidates = [Path(on_path).resolve()] if on_path else packaged
    return candidates[-1].parent if candidates else None


def _run_as(user: str, *command: str | Path) -> None:
    # The server inherits no pipe of ours: whoever waits for its end would wait for the server's.
    with tempfile.TemporaryFile() as output:
        become: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            [str(word) for word in command], stdout=output, stderr=output, cwd="/", check=False, **become
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode(errors="replace")
