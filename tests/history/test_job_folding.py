"""Builds jobs from lines: arrays, steps, unusual states, fields in every format, and missing columns."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.errors import ImportDataError
from foretell.history.accounting_lines import parse_layout
from foretell.schedulers.slurm.commands import parse_clock, parse_moment, parse_size

from .conftest import Read, line, step


def test_all_fields_of_a_job() -> None:
    text = line(JobID="9_3", JobIDRaw="12") + step("9_3", "batch", MaxRSS="10K", AveDiskRead="1M", AveDiskWrite="0.50M")
    (job,) = Read(text).jobs
    assert (job.job, job.task, job.state, job.elapsed_s, job.limit_s) == (9, 3, "completed", 100, 3600)
    assert (job.nodes, job.cores, job.gpus, job.memory_bytes, job.cpu_s) == (1, 4, 0, 8 * 2**30, 200)
    assert (job.peak_memory_bytes, job.read_bytes, job.written_bytes) == (10240, 2**20, 2**19)
    assert job.submitted_at == 1740823200  # as if the cluster's clock was in UTC


def test_steps_give_the_largest_memory_per_node_and_sums_of_bytes() -> None:
    text = (
        line(NNodes="2", AllocTRES="cpu=8,node=2,gres/gpu:v100=4")
        + step("7", "batch", MaxRSS="50K", AveDiskRead="2K")
        + step("7", "extern", MaxRSS="0", AveDiskRead="0")
        + step("7", "0", NTasks="5", NNodes="2", MaxRSS="100K", AveDiskRead="3K")
        + step("7", "1")
    )
    (job,) = Read(text).jobs
    assert (job.peak_memory_bytes, job.read_bytes, job.written_bytes) == (3 * 102400, 2048 + 5 * 3072, None)
    assert (job.cores, job.gpus, job.nodes, job.memory_bytes) == (8, 4, 2, None)


def test_steps_away_from_their_job_are_assigned_or_reported() -> None:
    text = line(JobID="7") + line(JobID="8") + step("7", "batch", MaxRSS="7K") + step("99", "batch") + line(JobID="10")
    found = Read(text)
    assert [job.peak_memory_bytes for job in found.jobs] == [7168, None, None]
    assert found.reasons() == {"steps without their job nearby": (1, 5)}


@pytest.mark.parametrize("raw", [True, False])
def test_a_job_has_the_same_id_with_and_without_a_raw_one(raw: bool) -> None:
    names = ("JobID", "JobIDRaw", "State", "ElapsedRaw") if raw else ("JobID", "State", "ElapsedRaw")
    rows = [("12_3", "77"), ("13+1", "14"), ("14_[3-9]", "14"), ("16", "16")]
    text = "".join(f"{job}|{number}|COMPLETED|5\n" if raw else f"{job}|COMPLETED|5\n" for job, number in rows)
    assert [(job.job, job.task) for job in Read(text, names=names).jobs] == [(12, 3), (13, 1), (14, -1), (16, -1)]


def test_ids_of_arrays_and_groups_without_a_raw_one() -> None:
    names = ("JobID", "State", "ElapsedRaw")
    text = "12_3|COMPLETED|5\n13+1|COMPLETED|5\n14_[3-9%2]|CANCELLED by 1000|0\n15_[1-2]|PENDING|0\n16|FAILED|1\n"
    found = Read(text, names=names)
    assert [(job.job, job.task) for job in found.jobs] == [(12, 3), (13, 1), (14, -1), (16, -1)]
    assert found.unfinished == 1


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CANCELLED by 1000", "cancelled"), ("NODE_FAIL", "interrupted"), ("PREEMPTED", "interrupted"),
        ("TIMEOUT", "timed_out"), ("OUT_OF_MEMORY", "out_of_memory"), ("FAILED", "failed"), ("DEADLINE", "cancelled"),
    ],
)  # fmt: skip
def test_final_states(word: str, state: str) -> None:
    assert Read(line(State=word)).jobs[0].state == state


def test_unfinished_jobs_wait_for_a_later_import() -> None:
    text = (
        line(State="RUNNING") + line(JobID="8", State="PENDING", Submit="Unknown") + line(JobID="9", State="SUSPENDED")
    )
    found = Read(text)
    assert (found.jobs, found.unfinished, found.complaints.found) == ([], 3, {})


def test_an_unknown_state_is_reported_once_and_nothing_else_is_lost() -> None:
    found = Read(line(JobID="6", State="LOST") + line() + line(JobID="8", State="LOST"))
    assert [job.job for job in found.jobs] == [7]
    assert found.reasons() == {"Slurm's state 'LOST' is unknown; please report it": (2, 2)}


def test_the_last_record_of_a_requeued_job_is_used_and_another_submission_is_another_job() -> None:
    text = line(State="NODE_FAIL", ElapsedRaw="5") + line() + line(Submit="2025-03-02T10:00:00", ElapsedRaw="9")
    assert [(job.state, job.elapsed_s) for job in Read(text).jobs] == [("completed", 100), ("completed", 9)]


def test_every_attempt_of_a_requeued_job_is_kept_with_its_own_start() -> None:
    """As ``sacct --duplicates`` lists them: an attempt that ended in a requeue, then the next one."""
    names = ("JobID", "State", "Submit", "Start", "ElapsedRaw")
    first = "7|REQUEUED|2025-03-01T10:00:00|2025-03-01T10:01:00|60\n"
    text = first + "7|COMPLETED|2025-03-01T10:02:01|2025-03-01T10:05:00|100\n"
    found = Read(text, names=names)
    assert [(job.state, job.started_at % 3600, job.elapsed_s) for job in found.jobs] == [
        ("interrupted", 60, 60), ("completed", 300, 100),
    ]  # fmt: skip
    assert found.unfinished == 0
    without = Read(text.replace("2025-03-01T10:00:00", "").replace("2025-03-01T10:02:01", ""), names=names)
    assert len(without.jobs) == 2  # without submission times, start times distinguish attempts


@pytest.mark.parametrize("column", ["ElapsedRaw", "Submit", "TotalCPU", "AllocTRES"])
def test_the_job_of_an_invalid_field_is_left_out_and_reported(column: str) -> None:
    found = Read(line(**{column: "cpu=x" if column == "AllocTRES" else "x1"}) + line(JobID="8"))
    assert [job.job for job in found.jobs] == [8]
    assert [(count, first) for count, first in found.reasons().values()] == [(1, 2)]


def test_an_invalid_field_of_a_step_is_reported() -> None:
    found = Read(line() + step("7", "batch", MaxRSS="lots") + line(JobID="8"))
    assert [job.job for job in found.jobs] == [8]
    assert "'lots' is not a size" in next(iter(found.reasons()))


def test_several_clusters_in_one_text() -> None:
    found = Read(line() + line(Cluster="c2"))
    assert (found.clusters, len(found.jobs)) == (["c1", "c2"], 2)


def test_few_columns_in_another_order_and_a_separator_at_the_end() -> None:
    layout = parse_layout("state|Elapsed|JobID|Timelimit|ReqMem|NCPUS|NNodes|", source="x")
    found = Read("COMPLETED|1-00:00:01|7|UNLIMITED|4Gc|3|2|\n", names=layout.names)
    (job,) = found.jobs
    assert (job.job, job.elapsed_s, job.limit_s, job.cores, job.nodes) == (7, 86401, None, 3, 2)
    assert (job.memory_bytes, job.submitted_at) == (12 * 2**30, 0)


@pytest.mark.parametrize(
    ("head", "missing"), [("JobID|State", "ElapsedRaw"), ("a,b,c", "JobID and State"), ("", "JobID")]
)
def test_a_head_line_without_a_required_column(head: str, missing: str) -> None:
    with pytest.raises(ImportDataError, match=f"does not name {missing}.*sacct --parsable2"):
        parse_layout(head, source="x.txt")


_MOMENTS = st.datetimes(datetime(1971, 1, 1)).map(lambda moment: moment.replace(microsecond=0).isoformat())
_CLOCKS = st.one_of(
    st.tuples(*[st.integers(0, 99)] * 3).map("{0[0]:02d}:{0[1]:02d}:{0[2]:02d}".format),
    st.tuples(*[st.integers(0, 59)] * 2, st.integers(0, 999)).map("{0[0]:02d}:{0[1]:02d}.{0[2]:03d}".format),
    st.tuples(st.integers(1, 400), *[st.integers(0, 59)] * 3).map("{0[0]}-{0[1]:02d}:{0[2]:02d}:{0[3]:02d}".format),
)
_SIZES = st.tuples(st.integers(0, 10**8), st.sampled_from(["K", "M", "G", ".25M", ".5K", ""])).map(
    lambda parts: f"{parts[0]}{parts[1]}"
)


@given(st.lists(st.tuples(_MOMENTS, _CLOCKS, _SIZES), min_size=1, max_size=20))
def test_many_fields_at_once_are_parsed_as_each_alone(rows: Any) -> None:
    text = "".join(
        line(JobID=str(number), Submit=moment, TotalCPU=clock) + step(str(number), "batch", MaxRSS=size)
        for number, (moment, clock, size) in enumerate(rows)
    )
    jobs = {job.job: job for job in Read(text).jobs}
    for number, (moment, clock, size) in enumerate(rows):
        whole = parse_moment(moment + "+00:00")
        assert whole is not None
        assert jobs[number].submitted_at == int(whole.timestamp())
        assert jobs[number].cpu_s == pytest.approx(parse_clock(clock))
        assert jobs[number].peak_memory_bytes == (parse_size(size) or None)
