"""Runs and scripts are written to real folders of the user's, wherever links lead."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Outcome
from tests.fake_slurm.cluster import FakeSlurm
from tests.schedulers.slurm.campaigns import Sweep
from tests.security.conftest import User, Users

import foretell as package
from foretell.apps.sweep import build_sweep
from foretell.core.errors import RunnerError
from foretell.core.run import State

_APP = "name: demo\ncommand: [echo, '{n}']\nparameters: {n: {type: integer, values: [1]}}\n"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/foretell.yaml").write_text(_APP)
    return tmp_path / "work/foretell.yaml"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder with files of the names that a run has."""
    folder = tmp_path / "precious"
    folder.mkdir()
    for name in ("stdout.log", "run.json", "job.txt", "sample.json", "setup.log"):
        (folder / name).write_text("years of work")
    return folder


def _check(precious: Path) -> None:
    assert {path.read_text() for path in precious.iterdir()} == {"years of work"}
    assert len(list(precious.iterdir())) == 5


def _find_run(app: Path) -> Path:
    (spec,) = build_sweep(package.load_app(app))
    return app.parent / ".foretell/runs/demo" / spec.id


@pytest.mark.parametrize("depth", [0, 1], ids=["run", "app"])
def test_a_linked_run_directory_is_refused(app: Path, precious: Path, depth: int) -> None:
    run = _find_run(app)
    place = [run, run.parent][depth]
    place.parent.mkdir(parents=True)
    if depth:
        (precious.parent / "target").mkdir()
        precious.rename(precious.parent / "target" / run.name)
        precious = precious.parent / "target" / run.name
        place.symlink_to(precious.parent)
    else:
        place.symlink_to(precious)
    with pytest.raises(RunnerError, match=r"symbolic link.*Remove the link"):
        package.generate(app)
    _check(precious)


@pytest.mark.parametrize("name", ["stdout.log", "stderr.log", "run.json", ".run.json.new", "setup.log"])
def test_linked_files_of_a_run_are_replaced(app: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("years of work")
    run = _find_run(app)
    run.mkdir(parents=True)
    (run / name).symlink_to(target)
    assert package.generate(app).completed == 1
    assert target.read_text() == "years of work"
    assert (run / "stdout.log").read_text() == "1\n"


@pytest.mark.parametrize("linked", [".foretell", ".foretell/runs", ".foretell/batches"])
@pytest.mark.parametrize("runner", ["local", "slurm"])
def test_the_whole_folder_may_be_on_another_disk(
    app: Path, tmp_path: Path, fake_slurm: FakeSlurm, linked: str, runner: str
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (app.parent / linked).parent.mkdir(exist_ok=True)
    (app.parent / linked).symlink_to(scratch)
    assert package.generate(app, runner=runner, wait=True).completed == 1


@pytest.mark.parametrize("name", ["", "stdout.log", "job.txt"])
def test_a_link_made_after_the_job_was_submitted(fake_slurm: FakeSlurm, tmp_path: Path, name: str) -> None:
    """The job's own script looks again."""
    (tmp_path / "work").mkdir()
    sweep = Sweep.build(tmp_path / "work", count=1)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "stdout.log").write_text("years of work")
    (precious / "job.txt").write_text("years of work")
    blocker = fake_slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "--exclusive", "--array=0-9", "--wrap", "sleep 3"
    ).strip()
    package.generate(sweep.app)
    (run,) = (sweep.folder / ".foretell/runs" / sweep.name).iterdir()
    if name:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(precious / name)
    else:
        run.rename(tmp_path / "moved")
        run.symlink_to(precious)
    fake_slurm.run("scancel", blocker)
    package.generate(sweep.app, wait=True)
    assert {path.read_text() for path in precious.iterdir()} == {"years of work"}
    assert sweep.states == {State.COMPLETED if name else State.FAILED: 1}


def test_a_folder_of_somebody_else_is_refused(users: Users) -> None:
    app = users.victim.write(users.victim.home / "work/foretell.yaml", _APP)
    (app.parent / ".foretell/runs").mkdir(parents=True)
    for folder in (app.parent / ".foretell", app.parent / ".foretell/runs"):
        os.chown(folder, users.mallory.user_id, users.mallory.group_id)
        folder.chmod(0o777)
    done = users.victim.foretell("generate", "--store", users.victim.home / "own.db", folder=app.parent)
    assert done.returncode == 1
    assert f"belongs to {users.mallory.name}" in done.stderr


def test_an_app_file_of_somebody_else_above_is_not_used(users: Users) -> None:
    """As in /tmp, where anybody may leave one."""
    root = users.victim.home.parent
    root.chmod(0o1777)
    users.mallory.run("sh", "-c", f"printf 'name: x\\ncommand: [touch, {root}/canary]\\n' > {root}/foretell.yaml")
    folder = users.victim.write(users.victim.home / "sub/file", "").parent
    done = users.victim.foretell("generate", folder=folder)
    assert done.returncode == 1
    assert f"belongs to {users.mallory.name}" in done.stderr
    assert not (root / "canary").exists()


def test_an_app_file_that_anybody_can_write_is_refused(tmp_path: Path, foretell: Callable[..., Outcome]) -> None:
    (tmp_path / "foretell.yaml").write_text(_APP)
    (tmp_path / "foretell.yaml").chmod(0o666)
    done = foretell("generate", folder=tmp_path)
    assert (done.code, "chmod o-w" in done.err) == (1, True), done


def test_victims_are_different_people(victim: User, mallory: User) -> None:
    """Else none of this would show anything."""
    secret = victim.write(victim.home / "private/x", "", mode=0o600)
    assert mallory.run("sh", "-c", f"echo 1 > {secret}").returncode != 0
