"""Slurm for tests: a fake one, a real one for all, and real ones that a test may break.

| Fixture | Scope | Gives |
| --- | --- | --- |
| ``fake_slurm`` | test | a fresh ``FakeSlurm``, first on ``PATH`` |
| ``real_slurm`` | session | the ``Cluster`` that all workers share: kill no daemon of it, cancel only your own jobs |
| ``slurm_environment`` | test | the same, with the environment in place |
| ``own_slurm`` | module | a ``Cluster`` nobody else uses |
| ``own_slurm_environment`` | test | the same, with the environment in place |
| ``bare_slurm`` | module | a ``Cluster`` nobody else uses, without accounting |
| ``bare_slurm_environment`` | test | the same, with the environment in place |
| ``slurm`` | test | twice: ``fake_slurm``, then ``slurm_environment`` (marked ``slurm``) |
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.slurm.cluster import Cluster
from tests.slurm.packages import ensure_installed

# Set by the process that the user started, and inherited by its workers.
_SHARED_FOLDER = "TEST_SLURM_FOLDER"
_OWNER = "TEST_SLURM_OWNER"


class Slurm(Protocol):
    """What tests may ask of both, the fake and the real one."""

    @property
    def environment(self) -> dict[str, str]: ...

    def run(self, *command: str) -> str: ...

    def cancel_all(self) -> None: ...

    def wait_until_idle(self) -> None: ...

    def expire(self, job_id: str) -> None: ...


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[_SHARED_FOLDER] = _name_folder()
        os.environ[_OWNER] = str(os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    # By now the workers have ended. If we are killed before, the cluster's keeper does this.
    if not hasattr(config, "workerinput") and Path(os.environ[_SHARED_FOLDER]).exists():
        Cluster(Path(os.environ[_SHARED_FOLDER])).remove()


@pytest.fixture(scope="session")
def real_slurm() -> Cluster:
    """The real cluster that all workers share; the process that started them ends it."""
    cluster = Cluster(Path(os.environ[_SHARED_FOLDER]))
    cluster.folder.mkdir(exist_ok=True)
    with (cluster.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cluster.is_running(cluster.daemons[-1]):
            start(cluster, owner=int(os.environ[_OWNER]))
    return cluster


@pytest.fixture
def slurm_environment(real_slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The shared real cluster, found by every command the test starts."""
    _set_environment(real_slurm, monkeypatch)
    return real_slurm


@pytest.fixture(scope="module")
def own_slurm() -> Iterator[Cluster]:
    """A real cluster that the tests of one module may break."""
    yield from _lend(Cluster(Path(_name_folder())))


@pytest.fixture
def own_slurm_environment(own_slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The module's own cluster, found by every command the test starts."""
    _set_environment(own_slurm, monkeypatch)
    return own_slurm


@pytest.fixture(scope="module")
def bare_slurm() -> Iterator[Cluster]:
    """A real cluster that keeps no accounts, of the module's own."""
    yield from _lend(Cluster(Path(_name_folder()), accounting=False))


@pytest.fixture
def bare_slurm_environment(bare_slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster without accounting, found by every command the test starts."""
    _set_environment(bare_slurm, monkeypatch)
    return bare_slurm


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """A fresh fake Slurm, first on ``PATH``; what still runs in the end is killed."""
    fake = FakeSlurm(tmp_path / "fake_slurm")
    fake.folder.mkdir()
    _set_environment(fake, monkeypatch)
    yield fake
    fake.end()


@pytest.fixture(params=["fake_slurm", pytest.param("slurm_environment", marks=pytest.mark.slurm)], ids=["fake", "real"])
def slurm(request: pytest.FixtureRequest) -> Slurm:
    """The fake, then the shared real one: for what both promise."""
    chosen: Slurm = request.getfixturevalue(request.param)
    return chosen


def _name_folder() -> str:
    # Not below pytest's own folder: a socket's path is short.
    return f"/tmp/slurm-{uuid.uuid4().hex[:8]}"


def _lend(cluster: Cluster) -> Iterator[Cluster]:
    start(cluster, owner=os.getpid())
    try:
        yield cluster
    finally:
        cluster.remove()


def start(cluster: Cluster, *, owner: int) -> None:
    """Start a cluster for as long as a process lives; skip or, in CI, fail where there can be none."""
    reason = ensure_installed()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    cluster.keep_until_end_of(owner)
    try:
        cluster.start()
    except BaseException:
        cluster.remove()
        raise


def _set_environment(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_", "SACCT_", "SQUEUE_"))]:
        monkeypatch.delenv(name)
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
