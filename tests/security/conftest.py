"""Two real Unix users who share a group: one attacks, the other only uses Foretell."""

import grp
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.fake_slurm.cluster import FakeSlurm

_SOURCE = Path(__file__).parents[2] / "src"
# Allows this Python to run from a folder of root: it can read everything, and write nothing more.
_READS_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A Unix user with a home folder."""

    name: str
    user_id: int
    group_id: int
    home: Path
    prefix: tuple[str, ...]

    def run(
        self, *words: str | Path, folder: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this user, with an almost empty environment."""
        return subprocess.run(
            [*self.prefix, *map(str, words)],
            cwd=folder or self.home,
            env=self._build_environment(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def start_foretell(self, *words: str | Path, folder: Path) -> subprocess.Popen[str]:
        """Start ``foretell WORDS`` in the background."""
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "foretell", *map(str, words)],
            cwd=folder,
            env=self._build_environment({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _build_environment(self, further: Mapping[str, str]) -> dict[str, str]:
        usual = {"HOME": str(self.home), "PATH": os.environ["PATH"], "COLUMNS": "200", "LANG": "C.UTF-8"}
        return {**usual, "PYTHONPATH": str(_SOURCE), "PYTHONDONTWRITEBYTECODE": "1", **further}

    def foretell(
        self, *words: str | Path, folder: Path | None = None, environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Run ``foretell WORDS``; it never ends with a traceback or a signal."""
        done = self.run(sys.executable, "-m", "foretell", *words, folder=folder, environment=environment)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode >= 0, (done.returncode, done.stderr)
        return done

    def write(self, path: Path, text: str, *, mode: int = 0o644) -> Path:
        """Write a file of this user."""
        assert path.is_relative_to(self.home)  # otherwise all folders above would become this user's
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        for own in (path, *path.parents):
            if own == self.home:
                break
            os.lchown(own, self.user_id, self.group_id)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """A victim and an attacker, in one group."""

    victim: User
    mallory: User
    group: str
    group_id: int


@pytest.fixture(scope="session")
def _accounts() -> Iterator[tuple[str, str, str]]:
    """Names of two users and their group, which are removed after the tests."""
    missing = [program for program in ("useradd", "groupadd", "setpriv") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        reason = f"needs root, to make two users{' and ' + ', '.join(missing) if missing else ''}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    names = (f"ftv{os.getpid()}", f"ftm{os.getpid()}", f"ftg{os.getpid()}")
    victim, mallory, group = names
    _remove_accounts(*names)  # of a run that was killed
    try:
        _call("groupadd", group)
        for name in (victim, mallory):
            _call("useradd", "--no-create-home", "--groups", group, "--shell", "/bin/sh", name)
        yield names
    finally:
        _remove_accounts(*names)


@pytest.fixture
def users(_accounts: tuple[str, str, str]) -> Iterator[Users]:
    """Both with empty home folders."""
    victim, mallory, group = _accounts
    # Not below pytest's own folder, which only root may enter.
    root = Path(tempfile.mkdtemp(prefix="foretell-users-", dir="/tmp"))
    root.chmod(0o755)
    try:
        yield Users(
            victim=_build_user(victim, group, root),
            mallory=_build_user(mallory, group, root),
            group=group,
            group_id=grp.getgrnam(group).gr_gid,
        )
    finally:
        shutil.rmtree(root)


@pytest.fixture
def victim(users: Users) -> User:
    return users.victim


@pytest.fixture
def mallory(users: Users) -> User:
    return users.mallory


@pytest.fixture
def shared(users: Users) -> Path:
    """A store that the group shares, made by the victim."""
    folder = users.victim.home.parent / "shared"
    folder.mkdir()
    os.chown(folder, 0, users.group_id)
    folder.chmod(0o2770)
    store = folder / "store.db"
    done = users.victim.foretell("store", "create", store, "--group", users.group)
    assert done.returncode == 0, done.stderr
    return store


@pytest.fixture
def cluster(victim: User) -> Iterator[FakeSlurm]:
    """A fake Slurm that the victim may use."""
    fake = FakeSlurm(victim.home / "slurm")
    fake.folder.mkdir()
    os.chown(fake.folder, victim.user_id, victim.group_id)
    yield fake
    fake.end()


def _build_user(name: str, group: str, root: Path) -> User:
    entry = pwd.getpwnam(name)
    home = root / name
    home.mkdir()
    os.chown(home, entry.pw_uid, entry.pw_gid)
    groups = f"--groups={entry.pw_gid},{grp.getgrnam(group).gr_gid}"
    become = ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", groups)
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    tried = subprocess.run([*become, sys.executable, "-c", again], capture_output=True, check=False)
    prefix = become if tried.returncode == 0 else (*become, *_READS_ALL)
    return User(name=name, user_id=entry.pw_uid, group_id=entry.pw_gid, home=home, prefix=prefix)


def _remove_accounts(victim: str, mallory: str, group: str) -> None:
    for name in (victim, mallory):
        subprocess.run(["userdel", name], capture_output=True, check=False)
    subprocess.run(["groupdel", group], capture_output=True, check=False)


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
