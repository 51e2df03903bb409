"""Advice for a real training, its own job script on a real cluster, and the advice after the job."""

import subprocess
from pathlib import Path

import pytest
from tests.slurm.cluster import Cluster

pytest.importorskip("torch")

from benchmarks.advise.end_to_end import EndToEnd, advise, measure_end_to_end, write_training

from foretell.core.prediction import Estimate

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
_EPOCHS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advise")


@pytest.fixture(scope="module")
def measured(real_slurm: Cluster, folder: Path) -> EndToEnd:
    return measure_end_to_end(folder, real_slurm.environment, epochs=_EPOCHS)


def width(estimate: Estimate) -> float:
    return estimate.high / estimate.low


def test_job_completes_within_what_was_requested(measured: EndToEnd) -> None:
    assert measured.state == "COMPLETED"
    assert 0 < measured.accounted_s <= measured.walltime_s
    assert measured.steps == _EPOCHS * 64


def test_runs_narrow_the_interval(measured: EndToEnd) -> None:
    assert width(measured.after_run) < width(measured.before)
    assert width(measured.after_job) < width(measured.before)
    assert measured.runs == 2


def test_answer_after_the_job_contains_its_time(measured: EndToEnd) -> None:
    assert measured.after_job.low <= measured.accounted_s <= measured.after_job.high


def test_job_script_says_what_was_predicted(measured: EndToEnd, folder: Path) -> None:
    script = (folder / "job.sbatch").read_text()
    assert "# Predicted: " in script
    assert "parameters" in script
    assert list((folder / ".foretell/advised").glob("train-*.json"))
    assert "epoch 12" in next(folder.glob(f"train-*-{measured.job}.out")).read_text()


def test_job_of_another_name_is_given_by_its_number(real_slurm: Cluster, tmp_path: Path) -> None:
    write_training(tmp_path)
    environment = real_slurm.environment
    first = advise(tmp_path, environment, epochs=1)
    script = tmp_path / "job.sbatch"
    script.write_text(script.read_text().replace("--job-name=train-", "--job-name=mine-"))
    job_id = _submit(real_slurm, script)
    assert first["runs"] is None
    assert advise(tmp_path, environment, "--force", epochs=1)["runs"] is None
    found = advise(tmp_path, environment, "--job", job_id, epochs=1)
    assert [each["source"] for each in found["runs"]["used"]] == [f"job {job_id}"]
    again = advise(tmp_path, environment, "--job", job_id, epochs=1)
    assert len(again["runs"]["used"]) == 1


def _submit(cluster: Cluster, script: Path) -> str:
    job_id = cluster.run("sbatch", "--parsable", "--wait", f"--chdir={script.parent}", str(script)).partition("\n")[0]
    _wait_for_accounting(cluster, job_id)
    return job_id


def _wait_for_accounting(cluster: Cluster, job_id: str) -> None:
    command = f"until sacct -nXP -j {job_id} -o State,End | grep -q 'COMPLETED|2'; do sleep 0.2; done"
    subprocess.run(
        ["bash", "-c", command], env={"PATH": "/usr/bin:/bin", **cluster.environment}, timeout=60, check=True
    )
