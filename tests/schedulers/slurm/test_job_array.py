"""Scripts of batches: their options, and that only one of two submissions makes runs."""

import os
import subprocess
from pathlib import Path

import pytest

from foretell.core.app import Submission
from foretell.core.batch import Batch
from foretell.core.errors import RunnerError
from foretell.core.run import Allocation, Launch
from foretell.schedulers.slurm.job_array import (
    ENDED,
    SCRIPT,
    build_batch,
    find_first,
    read_job_record,
    render_array_script,
    render_task_script,
)


def build(folder: Path, *, app: str = "app", submission: Submission | None = None) -> Batch:
    return build_batch(app, directory=folder, submission=submission or Submission(), run_ids=("r", "s"))


def list_options(batch: Batch) -> dict[str, str]:
    lines = render_array_script(batch, allocation=Allocation()).splitlines()
    words = (line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH "))
    return dict(word.partition("=")[::2] for word in words)


def test_a_batch_is_one_requeueable_array(tmp_path: Path) -> None:
    batch = build(tmp_path)
    options = list_options(batch)
    assert (options["array"], options["requeue"], options["job-name"]) == ("0-1", "", batch.name)


def test_users_can_disable_requeueing(tmp_path: Path) -> None:
    options = list_options(build(tmp_path, submission=Submission(options={"no-requeue": ""})))
    assert "no-requeue" in options
    assert "requeue" not in options


@pytest.mark.parametrize("name", ["array", "job-name", "output", "error", "chdir"])
def test_reserved_options_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunnerError, match=f"option '{name}' of sbatch is reserved"):
        list_options(build(tmp_path, submission=Submission(options={name: "x"})))


@pytest.mark.parametrize("app", ["plain", "it's odd", "-x", "é" * 50, "a/b"])
def test_slurm_keeps_the_name_of_a_batch(tmp_path: Path, app: str) -> None:
    batch = build(tmp_path, app=app)
    assert list_options(batch)["job-name"] == batch.name


def test_without_arrays_a_batch_is_a_job(tmp_path: Path) -> None:
    batch = build(tmp_path, submission=Submission(without=("array", "mem")))
    assert not {"array", "mem"} & set(list_options(batch))
    started = start(batch, tmp_path, SLURM_JOB_ID="12")
    assert started.returncode == 0
    assert read_job_record(tmp_path / "run")["job"] == "12"
    assert (Path(batch.directory) / ENDED / "0").exists()


def test_of_two_submissions_only_the_first_to_start_makes_runs(tmp_path: Path) -> None:
    batch = build(tmp_path)
    assert find_first(Path(batch.directory)) is None
    for job_id in ("12", "13", "12"):
        done = start(batch, tmp_path, SLURM_ARRAY_JOB_ID=job_id, SLURM_ARRAY_TASK_ID="0")
        assert done.returncode == 0
        assert find_first(Path(batch.directory)) == "12"
        assert read_job_record(tmp_path / "run")["job"] == "12_0"
    assert (tmp_path / "diary").read_text() == "ran\nran\n"


def start(batch: Batch, folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    directory = Path(batch.directory)
    (directory / ENDED).mkdir(parents=True, exist_ok=True)
    launch = Launch(
        argv=("sh", "-c", f"echo ran >>{folder}/diary"),
        working_directory=str(folder),
        run_directory=str(folder / "run"),
    )
    (directory / SCRIPT).write_text(render_array_script(batch, allocation=Allocation()))
    (directory / "task-0.sh").write_text(render_task_script(launch, allocation=Allocation()))
    return subprocess.run(["bash", directory / SCRIPT], env=os.environ | variables, check=False)


def test_a_log_is_watched_while_the_run_writes(tmp_path: Path) -> None:
    """A process that ends with the run frees the disk space of the middle."""
    launch = Launch(
        argv=("bash", "-c", "yes | head -c 3000000; sleep 1.5"),
        working_directory=str(tmp_path),
        run_directory=str(tmp_path / "run"),
        log_limit_bytes=1 << 20,
    )
    script = render_task_script(launch, allocation=Allocation()).replace("sleep 30", "sleep 0.3")
    (tmp_path / "ended").mkdir()
    words = f"batch={tmp_path} index=0 element=1\n{script}"
    done = subprocess.run(["bash", "-c", words], check=False, capture_output=True, text=True, timeout=60)
    facts = (tmp_path / "run/stdout.log").stat()
    assert (done.returncode, done.stderr) == (0, "")
    assert facts.st_size == 3_000_000
    assert facts.st_blocks * 512 < 1_500_000
