"""What was advised is kept, and what its job used comes back from the accounting; a fake Slurm stands in."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.fake_slurm.cluster import FakeSlurm

from foretell.advice.advised_jobs import AdvisedJob, keep_advised_job, list_advised_jobs
from foretell.advice.ended_jobs import collect_ended_jobs, collect_job
from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_runs import find_evidence
from foretell.core.errors import NotFoundError, SchedulerError
from foretell.core.prediction import Estimate
from foretell.core.run import Allocation

IDENTITY = TrainingIdentity(source="train.py", parameters=10, flops=1e6, precision="fp32")
TIME = Estimate(value=10.0, low=5.0, high=20.0, level=0.9)
JOB = AdvisedJob(
    name="train-12345678",
    identity=IDENTITY,
    place=StepPlace(device="AMD EPYC", batch=8, cores=1),
    allocation=Allocation(cores=1, partition="owens", node_type="owens"),
    steps=100,
    predicted=TIME,
    step=TIME,
    created_at=datetime.now(UTC),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / ".foretell"
    keep_advised_job(JOB, folder)
    return folder


def submit(slurm: FakeSlurm, *words: str, name: str = JOB.name, command: str = "sleep 1.2") -> str:
    options = [f"--job-name={name}", "--partition=owens", "--output=/dev/null", "--time=1", *words]
    job_id = slurm.run("sbatch", "--parsable", *options, f"--wrap={command}").strip()
    slurm.wait_until_idle()
    return job_id


def test_what_was_advised_is_read_again(folder: Path) -> None:
    assert list_advised_jobs(IDENTITY, folder) == [JOB]
    assert list_advised_jobs(replace(IDENTITY, parameters=11), folder) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": 3}', "\udcff", "[" * 100_000])
def test_files_that_are_none_are_left_out(folder: Path, text: str) -> None:
    (folder / "advised" / "bad.json").write_text(text, errors="surrogateescape")
    assert list_advised_jobs(IDENTITY, folder) == [JOB]


def test_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "advised" / "pipe.json")
    assert list_advised_jobs(IDENTITY, folder) == [JOB]


def test_file_of_another_name_is_left_out(folder: Path) -> None:
    """So that no file makes Foretell ask for a name of its own."""
    record = json.loads((folder / "advised" / f"{JOB.name}.json").read_text())
    (folder / "advised" / "x.json").write_text(json.dumps({**record, "name": "a,b --all"}))
    assert list_advised_jobs(IDENTITY, folder) == [JOB]


def test_job_comes_back_once(folder: Path, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    job_id = submit(fake_slurm)
    for _ in range(2):
        assert collect_ended_jobs(IDENTITY, folder=folder, store=store) == []
        (found,) = find_evidence(IDENTITY, store=store)
        assert (found.source, found.steps, found.place) == (f"job {job_id}", 100, JOB.place)
        assert found.elapsed_s is not None
        assert 1 <= found.elapsed_s <= 5


def test_failed_job_is_named_once_and_not_used(folder: Path, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    job_id = submit(fake_slurm, command="exit 3")
    (warning,) = collect_ended_jobs(IDENTITY, folder=folder, store=store)
    assert str(warning) == f"Job {job_id} of this training is not used: it ended as failed."
    assert collect_ended_jobs(IDENTITY, folder=folder, store=store) == []
    assert find_evidence(IDENTITY, store=store) == ()


def test_job_on_other_nodes_is_not_used(folder: Path, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    job_id = submit(fake_slurm, "--partition=pitzer")
    (warning,) = collect_ended_jobs(IDENTITY, folder=folder, store=tmp_path / "runs.db")
    assert str(warning) == (
        f"Job {job_id} of this training is not used: it ran in partition pitzer, where owens was advised."
    )
    with pytest.raises(NotFoundError, match="for other partitions, nodes or GPUs"):
        collect_job(job_id, IDENTITY, folder=folder, store=tmp_path / "runs.db")


@pytest.mark.parametrize("fault", ["sacct-down", "accounting-off"])
def test_accounting_that_does_not_respond_is_a_warning(
    folder: Path, fake_slurm: FakeSlurm, tmp_path: Path, fault: str
) -> None:
    fake_slurm.set_fault(fault)
    (warning,) = collect_ended_jobs(IDENTITY, folder=folder, store=tmp_path / "runs.db")
    assert warning.code == "accounting-unavailable"
    with pytest.raises(SchedulerError):
        collect_job("1", IDENTITY, folder=folder, store=tmp_path / "runs.db")


def test_job_of_another_name_is_found_by_its_number(folder: Path, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    job_id = submit(fake_slurm, name="mine")
    assert collect_ended_jobs(IDENTITY, folder=folder, store=store) == []
    assert find_evidence(IDENTITY, store=store) == ()
    for _ in range(2):
        assert collect_job(job_id, IDENTITY, folder=folder, store=store) == []
        assert len(find_evidence(IDENTITY, store=store)) == 1
    with pytest.raises(NotFoundError, match="no ended job named '999'"):
        collect_job("999", IDENTITY, folder=folder, store=store)


def test_nothing_is_asked_without_advice_or_without_slurm(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(argv: Sequence[str], **_: object) -> str:
        raise AssertionError(argv)

    monkeypatch.setattr("foretell.schedulers.slurm.named_jobs.call", refuse)
    monkeypatch.setattr("foretell.advice.ended_jobs.is_slurm_here", lambda: False)
    assert collect_ended_jobs(IDENTITY, folder=folder, store=tmp_path / "runs.db") == []
    monkeypatch.setattr("foretell.advice.ended_jobs.is_slurm_here", lambda: True)
    other = replace(IDENTITY, source="other.py")
    assert collect_ended_jobs(other, folder=folder, store=tmp_path / "runs.db") == []


def test_old_advice_is_no_longer_asked_for(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    keep_advised_job(replace(JOB, created_at=datetime(2020, 1, 1, tzinfo=UTC)), folder)
    fake_slurm.set_fault("sacct-down")
    assert collect_ended_jobs(IDENTITY, folder=folder, store=tmp_path / "runs.db") == []
