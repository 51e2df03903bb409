"""Parses the output of squeue."""

from pathlib import Path

import pytest
from tests.fake_slurm.cluster import FakeSlurm

from foretell.core.errors import SchedulerError
from foretell.core.run import State
from foretell.schedulers.slurm.job_status import QueueEntry, cancel, find_in_queue, parse_queue, read_queue

RECORDED = Path(__file__).parent / "recorded"


def test_recorded_text() -> None:
    entries = parse_queue((RECORDED / "24.11/squeue.txt").read_text())
    assert entries["4410120_2"] == QueueEntry(state=State.RUNNING, word="RUNNING", name="sweep", user_id=1001)
    assert entries["4410120_3"].why == "JobArrayTaskLimit"
    assert {job_id: place.state for job_id, place in entries.items() if "_" not in job_id} == {
        "4410190": State.QUEUED,
        "4410191": State.RUNNING,
        "4410192": State.QUEUED,
        "4410194": State.TIMED_OUT,
        "4410195": State.QUEUED,
    }
    assert (entries["4410196_0"].state, entries["4410196_1"].state) == (State.OUT_OF_MEMORY, State.INTERRUPTED)


def test_cluster_headings_are_skipped() -> None:
    assert list(parse_queue("CLUSTER: pitzer\n12|N/A|PENDING|0|Priority|a|b\n\n")) == ["12"]


@pytest.mark.parametrize(("text", "message"), [("12|RUNNING", "expected 6 fields"), ("1|2|ODD|0|None|n", "'ODD'")])
def test_unreadable_output_is_quoted(text: str, message: str) -> None:
    with pytest.raises(SchedulerError, match=message):
        parse_queue(text)


def test_unknown_jobs_are_missing(fake_slurm: FakeSlurm) -> None:
    assert read_queue(["99999"]) == {}
    assert read_queue([]) == {}
    assert find_in_queue("nobody") is None
    cancel(["99999"])


def test_a_job_is_found_by_name(fake_slurm: FakeSlurm) -> None:
    job_id = fake_slurm.run("sbatch", "--parsable", "--hold", "--array=0-2", "--job-name=mine", "--wrap", "true")
    assert find_in_queue("mine") == job_id.strip()
    assert find_in_queue("min") is None
    assert [place.name for place in read_queue([job_id.strip()]).values()] == ["mine"] * 3


def test_an_unreachable_controller_is_transient(fake_slurm: FakeSlurm) -> None:
    fake_slurm.set_fault("slurmctld-down")
    for ask in (lambda: read_queue(["1"]), lambda: find_in_queue("x"), lambda: cancel(["1"])):
        with pytest.raises(SchedulerError, match="Unable to contact slurm controller") as caught:
            ask()
        assert caught.value.transient
