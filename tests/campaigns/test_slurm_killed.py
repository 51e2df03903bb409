"""Foretell is killed or started twice: submitted runs are neither lost nor submitted again."""

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

pytestmark = pytest.mark.slow

# Code that makes the process kill itself at a certain point.
DEATHS = {
    "before it is written": "submit.Submitter._write = die",
    "before sbatch": "submit.submit = die",
    "after sbatch": "original = submit.submit; submit.submit = lambda *a, **k: (original(*a, **k), die())",
    "between two arrays": """
        original = submit.submit
        submit.Submitter._find_largest_array = lambda self: 2
        submit.submit = lambda *a, **k: (setattr(submit, 'submit', die), original(*a, **k))[1]
    """,
    "while waiting": "tracking.Tracker.collect = die",
    "before storing": "placement.BatchClaims.keep = die",
    "after storing": "keep = placement.BatchClaims.keep; placement.BatchClaims.keep = lambda *a: (keep(*a), die())",
}
PROGRAM = """
import os, signal, sys
import foretell
from foretell.campaigns import placement
from foretell.schedulers.slurm import submit
from foretell.schedulers.slurm import tracking
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 0.3)


def start_generate(sweep: Sweep, change: str = "") -> subprocess.Popen[str]:
    lines = "\n".join(line.strip() for line in change.splitlines())
    call = "foretell.generate(foretell.load_app(sys.argv[1]), wait=True)"
    return start_python(f"{PROGRAM.strip()}\n{lines}\n{call}\n", str(sweep.file))


@pytest.mark.parametrize("moment", DEATHS)
def test_the_next_campaign_continues_after_a_kill_at_any_point(slurm: Slurm, tmp_path: Path, moment: str) -> None:
    sweep = Sweep.build(tmp_path)
    with start_generate(sweep, DEATHS[moment]) as process:
        said, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    sweep.generate()
    sweep.check()
    sweep.check_submitted_once()


def test_two_campaigns_at_once_make_no_run_twice(slurm: Slurm, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, count=8)
    others = [start_generate(sweep) for _ in range(2)]
    for process in others:
        with process:
            said, _ = process.communicate()
            assert process.returncode == 0, said
    sweep.generate()
    sweep.check()
    sweep.check_submitted_once()


def test_two_campaigns_at_once_resolve_a_lost_reply_once(slurm: Slurm, tmp_path: Path) -> None:
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


def test_a_hanging_sbatch_is_ended_and_its_job_found(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    fake_slurm.set_fault("kill-after-submit", "hang")
    sweep = Sweep.build(tmp_path)
    with start_generate(sweep) as process:
        wait_for(lambda: len(sweep.diary) == sweep.count)
        process.kill()
    fake_slurm.clear_fault("kill-after-submit")
    result = sweep.generate()
    sweep.check()
    sweep.check_submitted_once()
    assert [note for note in result.notes if "was submitted as job 1; only the reply of sbatch was lost" in note]
    assert not [pid for pid in fake_slurm._find_processes() if b"sbatch" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_an_sbatch_killed_after_submission(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    fake_slurm.set_fault("kill-after-submit")
    sweep = Sweep.build(tmp_path)
    result = sweep.generate()
    sweep.check()
    sweep.check_submitted_once()
    assert result.notes[0].startswith("sbatch: killed by signal 9; it is checked whether the jobs were submitted")


def test_of_a_batch_submitted_twice_one_job_makes_the_runs(
    fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.build(tmp_path, count=fake_slurm.slots)
    sweep.hold()
    with start_generate(sweep, DEATHS["after sbatch"]) as process:
        process.communicate()
    with monkeypatch.context() as blind:
        blind.setattr("foretell.schedulers.slurm.submit.find_submitted", lambda *_, **__: None)
        blind.setattr("foretell.schedulers.slurm.batch_journal.TrackedBatch.find_first", lambda self: None)
        foretell.generate(sweep.app)
    (second,) = sweep.batches
    assert second != "1"
    sweep.release()
    result = sweep.generate()
    sweep.check()
    assert len({job_id.partition("_")[0] for job_id in sweep.list_jobs()}) == 2
    assert [note for note in result.notes if f"was also submitted as job 1; job {second} is cancelled" in note]


def test_another_login_node_continues(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep.build(tmp_path)
    sweep.hold()
    foretell.generate(sweep.app)
    monkeypatch.setattr(socket, "gethostname", lambda: "login02")
    monkeypatch.setattr(machine, "_boot_id", lambda: "another", raising=False)
    wait_for(lambda: len(sweep.diary) == sweep.count)
    standing = foretell.status(sweep.app)
    assert [(batch.running, batch.unfinished) for batch in standing.batches] == [(sweep.count, sweep.count)]
    sweep.release()
    sweep.generate()
    sweep.check()
    sweep.check_submitted_once()


def test_another_login_node_waits_for_a_submission_in_progress(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.build(tmp_path)
    with start_generate(sweep, DEATHS["before sbatch"]) as process:
        process.communicate()
    monkeypatch.setattr(socket, "gethostname", lambda: "login02")
    result = foretell.generate(sweep.app)
    assert "is submitting batch" in result.notes[0]
    assert sweep.list_jobs() == []
    monkeypatch.setattr("foretell.schedulers.slurm.submit._SILENT_AFTER", timedelta(0))
    result = sweep.generate()
    assert "had not reached Slurm and was submitted again" in result.notes[0]
    sweep.check()
    sweep.check_submitted_once()
