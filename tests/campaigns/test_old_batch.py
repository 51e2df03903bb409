"""Jobs that an older version submitted, whose modules had other names, are collected.

``old_batch`` has the files of a campaign as revision a751fe9 wrote them; only the paths are replaced.
"""

import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.schedulers.slurm.campaigns import wait_for

import foretell
from foretell.core.run import State

FILES = Path(__file__).with_name("old_batch")
BATCH = ".foretell/batches/old/67ebbb40d1344edc"


@pytest.fixture
def job_id(fake_slurm: FakeSlurm, tmp_path: Path) -> str:
    """The job of the old scripts, which waits in the queue."""
    batch = tmp_path / BATCH
    for folder in (batch / "logs", batch / "ended"):
        folder.mkdir(parents=True)
    for folder in (tmp_path / ".foretell", *batch.parents[:2], batch):
        folder.chmod(0o700)
    shutil.copy(FILES / "foretell.yaml", tmp_path)
    for name in ("array.sbatch", "task-0.sh", "task-1.sh"):
        (batch / name).write_text(read(name, tmp_path))
    output = f"--output={batch}/logs/%a.log"
    job_id = fake_slurm.run("sbatch", "--parsable", output, f"--chdir={batch}", f"{batch}/array.sbatch").strip()
    with sqlite3.connect(tmp_path / ".foretell/store.db") as store:
        store.executescript(read("store.sql", tmp_path))
        store.execute("UPDATE batches SET job_id = ?", [job_id])
    store.close()
    return job_id


def read(name: str, folder: Path) -> str:
    text = (FILES / name).read_text("utf-8")
    return text.replace("@FOLDER@", str(folder)).replace("@PYTHON@", sys.executable)


def test_runs_of_an_old_job_are_collected(fake_slurm: FakeSlurm, tmp_path: Path, job_id: str) -> None:
    assert foretell.status(tmp_path / "foretell.yaml").batches[0].queued == 2
    fake_slurm.run("scontrol", "release", job_id)
    wait_for(lambda: foretell.status(tmp_path / "foretell.yaml").batches == ())
    runs = foretell.list_runs(tmp_path / "foretell.yaml").runs
    assert [run.state for run in runs] == [State.COMPLETED] * 2
    assert sorted(run.phases["took"] for run in runs) == [2.0, 4.0]
    # Only the sampler measures context switches.
    assert all(run.usage is not None and run.usage.context_switches is not None for run in runs)
    assert foretell.generate(tmp_path / "foretell.yaml", wait=True).is_idle
    assert foretell.list_runs(tmp_path / "foretell.yaml").total == 2
