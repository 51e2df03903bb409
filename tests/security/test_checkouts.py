"""One store, two checkouts of the same app: each stores its own runs, with its own records and limits."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.security.conftest import Users

import foretell
from foretell.core.run import State

_APP = "name: demo\nshell: sleep 30\nrunner: slurm\ntime_limit: 1s\n"


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "a/foretell.yaml", tmp_path / "b/foretell.yaml"
    for path, text in zip(paths, (_APP, _APP.replace("time_limit: 1s\n", "")), strict=True):
        path.parent.mkdir()
        path.write_text(text)
    return paths


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_a_time_limit_is_not_stored_as_a_failure_from_elsewhere(
    fake_slurm: FakeSlurm, checkouts: tuple[Path, Path], store: Path
) -> None:
    here, elsewhere = checkouts
    foretell.generate(here, store=store)
    fake_slurm.wait_until_idle()
    for collect in (foretell.status, foretell.generate, foretell.cancel):
        result = collect(elsewhere, store=store)
        assert "is ignored" in " ".join(result.notes)
        assert str(here.parent) in " ".join(result.notes)
    assert foretell.status(here, store=store).collected == 1
    with foretell.open_store(store) as opened:
        (run,) = opened.runs("demo")
    assert (run.state, run.reason) == (State.TIMED_OUT, "stopped at its time limit of 1.0 s")


def test_a_checkout_reached_by_another_path_is_the_same(
    fake_slurm: FakeSlurm, checkouts: tuple[Path, Path], store: Path, tmp_path: Path
) -> None:
    here, _ = checkouts
    foretell.generate(here, store=store)
    fake_slurm.wait_until_idle()
    (tmp_path / "link").symlink_to(here.parent)
    with sqlite3.connect(store) as connection:  # as a version before may have written it
        (text,) = connection.execute("SELECT description FROM batches").fetchone()
        batch = json.loads(text)
        batch["directory"] = batch["directory"].replace(str(here.parent), str(tmp_path / "link"))
        connection.execute("UPDATE batches SET description = ?", (json.dumps(batch),))
    status = foretell.status(tmp_path / "link/foretell.yaml", store=store)
    assert (status.collected, status.notes) == (1, ())


def test_a_batch_of_the_version_before_is_stored(
    fake_slurm: FakeSlurm, checkouts: tuple[Path, Path], store: Path
) -> None:
    """It made its folders with whatever the umask left, and others of the group may write them."""
    here, _ = checkouts
    foretell.generate(here, store=store)
    for folder in (here.parent / ".foretell").rglob("*"):
        if folder.is_dir():
            folder.chmod(0o775)
    (here.parent / ".foretell").chmod(0o775)
    fake_slurm.wait_until_idle()
    assert foretell.status(here, store=store).collected == 1


def test_runs_of_a_removed_checkout_can_be_deleted(
    fake_slurm: FakeSlurm, checkouts: tuple[Path, Path], store: Path
) -> None:
    here, elsewhere = checkouts
    foretell.generate(here, store=store)
    fake_slurm.cancel_all()
    shutil.rmtree(here.parent)
    elsewhere.write_text("name: demo\nshell: 'true'\nrunner: slurm\n")
    with foretell.open_store(store) as opened:
        assert opened.delete_runs(opened.known_ids("demo")) == 1
    assert foretell.generate(elsewhere, store=store, wait=True).completed == 1


@pytest.fixture
def clusters(users: Users) -> Iterator[FakeSlurm]:
    """A fake Slurm that both users share."""
    fake = FakeSlurm(users.victim.home.parent / "slurm")
    fake.folder.mkdir()
    fake.folder.chmod(0o777)
    yield fake
    fake.end()


def test_the_batch_of_another_user_is_ignored(users: Users, shared: Path, clusters: FakeSlurm) -> None:
    apps = [user.write(user.home / "work/foretell.yaml", _APP) for user in (users.mallory, users.victim)]
    words = ("generate", "--store", shared)
    done = users.mallory.foretell(*words, folder=apps[0].parent, environment=clusters.environment)
    assert done.returncode == 0, done
    status = users.victim.foretell(
        "status", "--store", shared, "--json", folder=apps[1].parent, environment=clusters.environment
    )
    assert "is ignored" in json.loads(status.stdout)["notes"][0]
    assert json.loads(status.stdout)["counts"] == {"running": 1}
