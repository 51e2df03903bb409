"""Parses the output of sacct, recorded with 24.11 and 22.05."""

from pathlib import Path

import pytest

from foretell.core.batch import Job
from foretell.core.errors import SchedulerError
from foretell.core.run import State
from foretell.schedulers.slurm.commands import parse_moment
from foretell.schedulers.slurm.job_status import FIELDS, parse_jobs, read_jobs

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(scope="module")
def jobs() -> dict[str, Job]:
    header, _, rows = (RECORDED / "24.11/sacct.txt").read_text().partition("\n")
    assert tuple(header.split("|")) == FIELDS
    return parse_jobs(rows)


def row(**values: str) -> str:
    return "|".join(values.get(field, "") for field in FIELDS)


def test_steps_are_added_to_their_job(jobs: dict[str, Job]) -> None:
    job = jobs["4410100"]
    assert (job.state, job.exit_code, job.signal, job.name) == (State.COMPLETED, 0, 0, "train")
    assert (job.started_at, job.ended_at) == (parse_moment("2025-06-01T08:00:09"), parse_moment("2025-06-01T09:10:21"))
    assert job.usage is not None
    assert (job.usage.elapsed_s, job.usage.cpu_s) == (4212, 7900)
    assert job.usage.peak_memory_bytes == 7340032 << 10  # of the largest step
    assert job.usage.read_bytes == pytest.approx((12.5 + 2048.25) * 2**20)
    assert job.usage.written_bytes == pytest.approx((1.75 + 310.4) * 2**20, abs=1)
    assert (job.allocated.cores, job.allocated.gpus, job.allocated.walltime_s) == (16, 1, 7200)
    assert (job.allocated.partition, job.allocated.memory_bytes) == ("gpu", 120000 << 20)


def test_elements_of_an_array_have_their_own_states(jobs: dict[str, Job]) -> None:
    states = {job_id: job.state for job_id, job in jobs.items() if job_id.startswith("4410120_")}
    assert list(states.values())[:3] == [State.TIMED_OUT, State.OUT_OF_MEMORY, State.RUNNING]
    assert {states[f"4410120_{index}"] for index in range(3, 20)} == {State.QUEUED}
    assert len(states) == 20
    assert jobs["4410120_3"].usage is None


def test_totals_are_divided_by_nodes(jobs: dict[str, Job]) -> None:
    job = jobs["4410151"]
    assert (job.allocated.nodes, job.allocated.cores, job.allocated.memory_bytes) == (2, 128, 257500 << 20)
    assert job.allocated.walltime_s is None
    assert job.usage is not None
    assert job.usage.peak_memory_bytes == 201326592 << 10
    assert job.usage.read_bytes == (5120 + 2 * 40960) * 2**20  # a mean of two tasks


def test_cancelled_in_the_queue(jobs: dict[str, Job]) -> None:
    job = jobs["4410150"]
    assert (job.state, job.word, job.started_at) == (State.CANCELLED, "CANCELLED by 1000", None)
    assert job.ended_at is not None
    assert job.node_list == ""


@pytest.mark.parametrize("job_id", ["4410160", "4410161"])
def test_node_failure_is_interrupted(jobs: dict[str, Job], job_id: str) -> None:
    assert jobs[job_id].state is State.INTERRUPTED


def test_several_tasks_of_a_step_share_a_node(jobs: dict[str, Job]) -> None:
    usage = jobs["4410170+0"].usage
    assert usage is not None
    assert usage.peak_memory_bytes == 2 * 524288 << 10


def test_an_incomplete_row_has_no_end_yet() -> None:
    half = row(JobID="1_0", JobName="allocation", State="COMPLETED", ExitCode="0:0", End="2026-11-16T05:26:34")
    assert parse_jobs(half)["1_0"].ended_at is None
    whole = row(JobID="1_0", State="COMPLETED", ExitCode="0:0", End="2026-11-16T05:26:34", TimelimitRaw="60")
    assert parse_jobs(whole)["1_0"].ended_at is not None


def test_a_signal_and_an_empty_exit_code() -> None:
    killed = parse_jobs(row(JobID="9", State="FAILED", ExitCode="0:9", TimelimitRaw="5"))["9"]
    assert (killed.exit_code, killed.signal) == (0, 9)
    assert parse_jobs(row(JobID="9", State="NODE_FAIL", TimelimitRaw="5"))["9"].exit_code is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1|2|3", "sacct printed '1|2|3'; expected 23 fields"),
        (row(JobID="1", State="MELTED"), "an unknown state: 'MELTED'"),
        (row(JobID="1", State="COMPLETED", TotalCPU="much"), "sacct's record of job 1: 'much' is not a time"),
    ],
)
def test_unreadable_output_is_quoted(text: str, message: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        parse_jobs(text)
    assert message in str(caught.value)


def test_no_job_ids_call_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert read_jobs([]) == {}
