"""Results of runs without a complete accounting record."""

from dataclasses import replace
from pathlib import Path

import pytest

from foretell.core.batch import Job
from foretell.core.run import Allocation, Launch, RunSpec, State, Usage
from foretell.schedulers.slurm.finished_runs import Task, build_job_without_accounting, build_run

JOB = Job(id="12_3", state=State.FAILED, word="FAILED", usage=Usage(elapsed_s=9.0))
SLURMSTEPD = "slurmstepd-o0001: error:"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    launch = Launch(argv=("true",), working_directory=str(tmp_path), run_directory=str(tmp_path))
    return Task(spec=RunSpec(app="a", parameters={}, allocation=Allocation(memory_bytes=1 << 20)), launch=launch)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "3.log"


def note(task: Task, **values: object) -> None:
    (task.directory / "job.txt").write_text("".join(f"{name}={value}\n" for name, value in values.items()))


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (f"{SLURMSTEPD} *** JOB 11 ON o0001 CANCELLED AT 2026-11-16T05:27:06 DUE TO TIME LIMIT ***", State.TIMED_OUT),
        (f"{SLURMSTEPD} *** JOB 12 ON o0001 CANCELLED AT 2026-11-16T05:26:35 ***", State.CANCELLED),
        (f"{SLURMSTEPD} *** JOB 3 ON o2 CANCELLED AT x DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", State.INTERRUPTED),
        (f"{SLURMSTEPD} *** JOB 3 ON o2 CANCELLED AT x DUE TO PREEMPTION ***", State.INTERRUPTED),
        (f"{SLURMSTEPD} Exceeded job memory limit", State.OUT_OF_MEMORY),
        (f"{SLURMSTEPD} Detected 1 oom_kill event in StepId=9.batch.", State.OUT_OF_MEMORY),
        ("something else", State.INTERRUPTED),
    ],
)
def test_slurms_last_message_in_the_log_gives_the_state(task: Task, log: Path, line: str, state: State) -> None:
    log.write_text(f"hello\n{line}\n")
    note(task, job="12_3", started=1.0)
    job = build_job_without_accounting("12_3", word="", state=State.INTERRUPTED, task=task, log=log)
    assert job.state is state


@pytest.mark.parametrize(
    ("code", "word", "queue", "state"),
    [
        (0, "", State.CANCELLED, State.COMPLETED),
        (3, "", State.INTERRUPTED, State.FAILED),
        (0, "CANCELLED", State.CANCELLED, State.COMPLETED),  # too late
        (0, "TIMEOUT", State.TIMED_OUT, State.TIMED_OUT),
        (1, "NODE_FAIL", State.INTERRUPTED, State.INTERRUPTED),
    ],
)
def test_record_of_the_job_script(task: Task, log: Path, code: int, word: str, queue: State, state: State) -> None:
    note(task, job="12_3", host="o0001", started=1.0, code=code, ended=2.5)
    job = build_job_without_accounting("12_3", word=word, state=queue, task=task, log=log)
    run = build_run(task, job, log=log, remark="why")
    assert (run.state, run.machine.hostname) == (state, "o0001")
    assert run.reason.endswith("why")
    assert run.usage is not None
    assert run.usage.elapsed_s == 1.5
    assert run.allocated is None


def test_the_record_of_another_job_is_ignored(task: Task, log: Path) -> None:
    note(task, job="7_3", started=1.0, code=0, ended=2.5)
    job = build_job_without_accounting("12_3", word="", state=State.CANCELLED, task=task, log=log)
    assert (job.state, job.exit_code) == (State.CANCELLED, None)


def test_without_cgroups_the_log_shows_that_memory_ran_out(task: Task, log: Path) -> None:
    log.write_text(f"{SLURMSTEPD} StepId=9.batch exceeded memory limit (644661248 > 209715200), being killed\n")
    run = build_run(task, replace(JOB, signal=9, allocated=Allocation(memory_bytes=200 << 20)), log=log)
    assert run.state is State.OUT_OF_MEMORY
    assert run.usage is not None
    assert run.usage.peak_memory_bytes == 200 << 20  # at least
    assert run.reason.startswith("used more than the requested 200 MB")


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (replace(JOB, exit_code=3), "ended with exit code 3"),
        (replace(JOB, exit_code=0, signal=11), "ended with SIGSEGV"),
        (replace(JOB, state=State.CANCELLED, word="CANCELLED by 1000"), "cancelled by user 1000"),
        (replace(JOB, state=State.CANCELLED, word="DEADLINE"), "cancelled (DEADLINE)"),
        (replace(JOB, state=State.INTERRUPTED, word="NODE_FAIL", node_list="o0002"), "node fail on o0002"),
    ],
)
def test_reasons(task: Task, log: Path, job: Job, reason: str) -> None:
    assert build_run(task, job, log=log).reason == reason
