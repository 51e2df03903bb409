"""Foretell is killed, or started twice: what it handed to Slurm is neither forgotten nor submitted again."""

import signal
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.schedulers.slurm.campaigns import Sweep, start_python, wait_for
from tests.slurm.fixtures import Slurm

import foretell
from foretell.measure import machine
from foretell.schedulers.slurm import runner

# Where a process dies: it is replaced there by one that kills itself.
DEATHS = {
    "before it is written": "submitting.Submitter._write = die",
    "before sbatch": "submitting.submit = die",
    "after sbatch": "submit = submitting.submit; submitting.submit = lambda *a, **k: (submit(*a, **k), die())",
    "between two arrays": """
        submit = submitting.submit
        submitting.Submitter._find_largest_array = lambda self: 2
        submitting.submit = lambda *a, **k: (setattr(submitting, 'submit', die), submit(*a, **k))[1]
    """,
    "while waiting": "following.Follower.look = die",
    "before storing": "claims.BatchClaims.keep = die",
    "after storing": "keep = claims.BatchClaims.keep; claims.BatchClaims.keep = lambda *a: (keep(*a), die())",
}
PROGRAM = """
import os, signal, sys
import foretell
from foretell.campaigns import claims
from foretell.schedulers.slurm import submit as submitting
from foretell.schedulers.slurm import tracking as following
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_SHORTEST_S", 0.3)


def start_generate(sweep: Sweep, change: str = "") -> subprocess.Popen[str]:
    lines = "\n".join(line.strip() for line in change.splitlines())
    call = "foretell.generate(foretell.load_app(sys.argv[1]), wait=True)"
    return start_python(f"{PROGRAM.strip()}\n{lines}\n{call}\n", str(sweep.file))


@pytest.mark.parametrize("moment", DEATHS)
def test_killed_at_any_moment_the_next_one_goes_on(slurm: Slurm, tmp_path: Path, moment: str) -> None:
    sweep = Sweep.build(tmp_path)
    with start_generate(sweep, DEATHS[moment]) as process:
        said, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    sweep.generate()
    sweep.check()
    sweep.check_submitted_once()


def test_two_at_once_make_nothing_twice(slurm: Slurm, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, count=8)
    others = [start_generate(sweep) for _ in range(2)]
    for process in others:
        with process:
            said, _ = process.communicate()
            assert process.returncode == 0, said
    sweep.generate()
    sweep.check()
    sweep.check_submitted_once()


def test_two_at_once_settle_a_lost_answer_once(slurm: Slurm, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path)
    with start_generate(sweep, DEATHS["before sbatch"]) as process:
        process.communicate()
    others = [start_generate(sweep) for _ in range(2)]
    for process in others:
        with process:
            said, _ = process.communicate()
            assert process.returncode == 0, said
    sweep.generate()
    sweep.check()
    sweep.check_submitted_once()


def test_an_sbatch_that_hangs_is_ended_and_its_job_found(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    fake_slurm.set_fault("kill-after-submit", "hang")
    sweep = Sweep.build(tmp_path)
    with start_generate(sweep) as process:
        wait_for(lambda: len(sweep.diary) == sweep.count)
        process.kill()
    fake_slurm.clear_fault("kill-after-submit")
    result = sweep.generate()
    sweep.check()
    sweep.check_submitted_once()
    assert [note for note in result.notes if "had been taken as job 1: its answer was lost, nothing else" in note]
    assert not [pid for pid in fake_slurm._find_processes() if b"sbatch" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_an_sbatch_that_dies_after_it_was_heard(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    fake_slurm.set_fault("kill-after-submit")
    sweep = Sweep.build(tmp_path)
    result = sweep.generate()
    sweep.check()
    sweep.check_submitted_once()
    assert result.notes[0].startswith("sbatch: killed by signal 9; whether the jobs were taken is found out")


def test_of_a_batch_that_was_taken_twice_one_works(
    fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.build(tmp_path, count=fake_slurm.slots)
    sweep.hold()
    with start_generate(sweep, DEATHS["after sbatch"]) as process:
        process.communicate()
    with monkeypatch.context() as blind:
        blind.setattr("foretell.schedulers.slurm.submit.find_submitted", lambda *_, **__: None)
        blind.setattr("foretell.schedulers.slurm.batches.Followed.find_first", lambda self: None)
        foretell.generate(sweep.app)
    (second,) = sweep.batches
    assert second != "1"
    sweep.let_go()
    result = sweep.generate()
    sweep.check()
    assert len({job_id.partition("_")[0] for job_id in sweep.list_jobs()}) == 2
    assert [note for note in result.notes if f"had been taken as job 1, too: job {second} is cancelled" in note]


def test_another_login_node_goes_on(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep.build(tmp_path)
    sweep.hold()
    foretell.generate(sweep.app)
    monkeypatch.setattr(socket, "gethostname", lambda: "login02")
    monkeypatch.setattr(machine, "_boot_id", lambda: "another", raising=False)
    wait_for(lambda: len(sweep.diary) == sweep.count)
    standing = foretell.status(sweep.app)
    assert [(batch.running, batch.unfinished) for batch in standing.batches] == [(sweep.count, sweep.count)]
    sweep.let_go()
    sweep.generate()
    sweep.check()
    sweep.check_submitted_once()


def test_another_login_node_leaves_what_is_being_submitted_alone_for_a_while(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.build(tmp_path)
    with start_generate(sweep, DEATHS["before sbatch"]) as process:
        process.communicate()
    monkeypatch.setattr(socket, "gethostname", lambda: "login02")
    result = foretell.generate(sweep.app)
    assert "is being submitted by process" in result.notes[0]
    assert sweep.list_jobs() == []
    monkeypatch.setattr("foretell.schedulers.slurm.submit._SILENT_AFTER", timedelta(0))
    result = sweep.generate()
    assert "had never reached Slurm; it was submitted now" in result.notes[0]
    sweep.check()
    sweep.check_submitted_once()
