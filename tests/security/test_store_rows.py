"""Rows that other users write into a shared store are data, never commands."""

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Outcome
from tests.fake_slurm.cluster import FakeSlurm
from tests.security.conftest import User, Users
from tests.security.store_rows import EXAMPLE, hash_spec, insert_batch

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_BATCH = "0123456789abcdef"
_SCRIPT = "#!/bin/bash\n#SBATCH --array=0-0\ntouch {canary}\n"


@pytest.fixture
def app(victim: User) -> Path:
    return victim.write(victim.home / "work/foretell.yaml", EXAMPLE)


@pytest.fixture
def attack(users: Users, shared: Path) -> Callable[..., None]:
    """Insert a batch as the attacker."""

    def insert(**values: object) -> None:
        done = users.mallory.run(
            sys.executable, "-m", "tests.security.store_rows", shared, json.dumps(values),
            environment={"PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return insert


def _plant_script(mallory: User, name: str = "evil") -> tuple[Path, Path]:
    """A folder as batches have one, with a script that leaves a file."""
    canary = mallory.home.parent / "canary"
    folder = mallory.home / name
    for script in ("array.sbatch", "task-0.sh"):
        mallory.write(folder / script, _SCRIPT.format(canary=canary), mode=0o755)
    canary.parent.chmod(0o777)
    return folder, canary


def test_a_script_that_a_row_names_is_not_submitted(
    users: Users, shared: Path, app: Path, cluster: FakeSlurm, attack: Callable[..., None]
) -> None:
    folder, canary = _plant_script(users.mallory)
    attack(batch_id=_BATCH, run_id=hash_spec({"n": 1}), parameters={"n": 1}, directory=str(folder))
    done = users.victim.foretell(
        "generate", "--runner", "slurm", "--store", shared, folder=app.parent, environment=cluster.environment
    )
    cluster.wait_until_idle()
    assert not canary.exists()
    said = " ".join(done.stderr.split())
    assert f"ignored: it was submitted from '{folder}'" in said
    assert str(folder) not in (cluster.folder / "state.json").read_text()


def test_a_folder_that_a_row_names_is_not_deleted(
    users: Users, shared: Path, app: Path, cluster: FakeSlurm, attack: Callable[..., None]
) -> None:
    precious = users.victim.write(users.victim.home / "thesis/chapter.tex", "years of work")
    attack(batch_id=_BATCH, run_id=hash_spec({"n": 1}), parameters={"n": 1}, directory=str(precious.parent))
    users.victim.foretell("generate", "--store", shared, folder=app.parent, environment=cluster.environment)
    assert precious.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_id": "../../../../evil"},
        {"name": "other-name"},
        {"name": "demo --wrap=evil"},
        {"job_id": "1 --user=root"},
        {"job_id": "--help"},
        {"submission": {"options": {}, "cluster": "x --wrap"}},
        {"app": "another"},
    ],
    ids=str,
)
def test_rows_that_foretell_never_writes_are_ignored(
    users: Users,
    shared: Path,
    app: Path,
    cluster: FakeSlurm,
    attack: Callable[..., None],
    changes: dict[str, object],
) -> None:
    own = app.parent / ".foretell/batches/demo" / _BATCH
    attack(
        **{"batch_id": _BATCH, "run_id": hash_spec({"n": 1}), "parameters": {"n": 1}, "directory": str(own)} | changes
    )
    for words in (["status"], ["generate"], ["cancel"]):
        done = users.victim.foretell(*words, "--store", shared, folder=app.parent, environment=cluster.environment)
        assert (done.returncode, "is ignored" in done.stdout + done.stderr) == (0, True), done


def test_a_script_in_the_own_folder_is_overwritten(
    users: Users, shared: Path, app: Path, cluster: FakeSlurm, attack: Callable[..., None]
) -> None:
    """Even what lies in the right place is not run as it is."""
    folder = app.parent / ".foretell/batches/demo" / _BATCH
    canary = users.victim.home / "canary"
    for name in ("array.sbatch", "task-0.sh"):
        users.victim.write(folder / name, _SCRIPT.format(canary=canary), mode=0o775)
    folder.chmod(0o777)
    attack(
        batch_id=_BATCH, run_id=hash_spec({"n": 1}), parameters={"n": 1}, directory=str(folder),
        submission={"partition": "owens", "options": {"comment": "of-mallory"}},
    )  # fmt: skip
    done = users.victim.foretell(
        "generate", "--wait", "--store", shared, folder=app.parent, environment=cluster.environment
    )
    assert done.returncode == 0, done
    assert not canary.exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "of-mallory" not in (cluster.folder / "state.json").read_text()
    runs = users.victim.foretell("runs", "list", "demo", "--json", "--store", shared).stdout
    assert [run["state"] for run in json.loads(runs)["runs"]] == ["completed", "completed"]


def test_a_run_that_is_not_in_the_app_file_is_not_made(
    users: Users, shared: Path, cluster: FakeSlurm, attack: Callable[..., None]
) -> None:
    """A word of the command that a row chooses is a command, too."""
    app = users.victim.write(
        users.victim.home / "work/foretell.yaml",
        "name: demo\ncommand: [sh, '{script}']\nparameters: {script: {values: [/dev/null]}}\nrunner: slurm\n",
    )
    folder, canary = _plant_script(users.mallory)
    evil = {"script": str(folder / "task-0.sh")}
    own = users.victim.write(app.parent / ".foretell/batches/demo" / _BATCH / "array.sbatch", "")
    attack(batch_id=_BATCH, run_id=hash_spec(evil), parameters=evil, directory=str(own.parent))
    done = users.victim.foretell(
        "generate", "--wait", "--store", shared, folder=app.parent, environment=cluster.environment
    )
    assert done.returncode == 0, done
    assert not canary.exists()


def test_a_job_that_a_row_names_is_not_cancelled(
    users: Users, shared: Path, app: Path, cluster: FakeSlurm, attack: Callable[..., None]
) -> None:
    job = users.victim.run(
        "sbatch", "--parsable", "--job-name=thesis", "--wrap", "sleep 60", environment=cluster.environment
    ).stdout.strip()
    own = app.parent / ".foretell/batches/demo" / _BATCH
    attack(batch_id=_BATCH, run_id=hash_spec({"n": 1}), parameters={"n": 1}, directory=str(own), job_id=job)
    users.victim.foretell("cancel", "--store", shared, folder=app.parent, environment=cluster.environment)
    queue = users.victim.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", environment=cluster.environment)
    assert queue.stdout.strip() in ("PENDING", "RUNNING")


class TestAppsByName:
    """An app in a store has a command: it is anybody's who can write the store."""

    @pytest.fixture
    def planted(self, users: Users, shared: Path) -> tuple[Path, Path]:
        canary = users.mallory.home.parent / "canary"
        canary.parent.chmod(0o777)
        file = users.mallory.write(
            users.mallory.home / "foretell.yaml",
            f"name: demo\ncommand: [touch, {canary}]\nsetup: [[touch, {canary}]]\n",
        )
        # The attacker's own generate stores the app, and leaves its run to be made again.
        done = users.mallory.foretell("generate", file, "--store", shared)
        assert done.returncode == 0, done
        canary.unlink()
        with sqlite3.connect(shared) as connection:
            connection.execute("DELETE FROM runs")
        return shared, canary

    @pytest.mark.parametrize("command", [["generate"], ["generate", "--dry-run"], ["run"], ["verify"]], ids=" ".join)
    def test_its_command_is_not_run(self, users: Users, planted: tuple[Path, Path], command: list[str]) -> None:
        store, canary = planted
        done = users.victim.foretell(command[0], "demo", *command[1:], "--store", store)
        assert done.returncode == 1
        assert "pass the app file" in done.stderr
        assert not canary.exists()

    def test_its_runs_can_be_read(self, users: Users, planted: tuple[Path, Path]) -> None:
        store, _ = planted
        assert users.victim.foretell("status", "demo", "--store", store).returncode == 0
        assert users.victim.foretell("runs", "list", "demo", "--store", store).returncode == 0

    def test_a_script_is_written_without_its_command(self, users: Users, planted: tuple[Path, Path]) -> None:
        store, canary = planted
        table = users.victim.write(users.victim.home / "runs.csv", _build_table())
        words: list[str | Path] = ["runs", "import", table, "--app", "demo", "--elapsed", "elapsed_s"]
        assert users.victim.foretell(*words, "--store", store).returncode == 0
        assert (
            users.mallory.foretell("generate", users.mallory.home / "foretell.yaml", "--store", store).returncode == 0
        )
        assert users.victim.foretell("build", "demo", "--store", store).returncode == 0
        done = users.victim.foretell("recommend", "demo", "--set", "n=4", "--store", store)
        script = (users.victim.home / "job.sh").read_text() if done.returncode == 0 else ""
        assert str(canary) not in script

    def test_a_name_is_enough_in_a_store_of_ones_own(self, users: Users) -> None:
        file = users.victim.write(users.victim.home / "work/foretell.yaml", "name: demo\ncommand: ['true']\n")
        store = users.victim.home / "own.db"
        for app in (file, "demo"):
            assert users.victim.foretell("generate", app, "--store", store).returncode == 0


def _build_table() -> str:
    return "n,elapsed_s\n" + "".join(f"{n},{n * 2.0}\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "parameters", "[1]"),
        ("runs", "parameters", '{"n": {}}'),
        ("runs", "allocation", '{"cores": "many"}'),
        ("runs", "allocation", '{"surprise": 1, "cores": []}'),
        ("runs", "machine", '"x"'),
        ("runs", "phases", '{"a": "b"}'),
        ("runs", "elapsed_s", "soon"),
        ("runs", "started_at", "yesterday"),
        ("runs", "log_tail", b"\xff"),
        ("runs", "state", "odd"),
        ("batches", "description", "{}"),
        ("batches", "description", '{"id": 1, "run_ids": 5}'),
        ("apps", "description", '{"name": "demo", "command": 3}'),
        ("apps", "description", '{"name": "demo", "estimate": "9**9**9**9**n", "per": "__import__"}'),
        ("apps", "description", "[" * 5000),
    ],
)
@pytest.mark.usefixtures("fake_slurm")
def test_values_of_other_types_are_one_sentence(
    tmp_path: Path, foretell: Callable[..., Outcome], table: str, column: str, value: object
) -> None:
    (tmp_path / "foretell.yaml").write_text(EXAMPLE)
    (tmp_path / "runs.csv").write_text(_build_table())
    imported = foretell("runs", "import", "runs.csv", "--app", "demo", "--elapsed", "elapsed_s", folder=tmp_path)
    assert imported.code == 0, imported
    store = tmp_path / ".foretell/store.db"
    insert_batch(store, batch_id=_BATCH, run_id=hash_spec({"n": 1}), parameters={"n": 1})
    with sqlite3.connect(store) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))  # a constant
    for words in (
        "runs list demo",
        "status",
        "generate --dry-run",
        "build demo",
        "status demo",
        "predict demo --set n=3",
    ):
        done = foretell(*words.split(), folder=tmp_path)
        assert done.code == 0 or done.err.startswith("Error: "), done.err


def test_names_with_slashes_are_no_folders(tmp_path: Path) -> None:
    import foretell
    from foretell.core.app import App
    from foretell.core.errors import SpecError

    for name in ("../../evil", "/etc", "..", "a/b"):
        with pytest.raises(SpecError, match="letters, digits"):
            foretell.generate(App(name=name, command=("true",), directory=str(tmp_path)), store="sqlite://")
    assert list(tmp_path.iterdir()) == []
