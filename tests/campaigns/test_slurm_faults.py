"""Runs that end otherwise, and clusters that say no: each told in one clear sentence, nothing lost, nothing doubled."""

import itertools
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Outcome
from tests.fake_slurm.cluster import FakeSlurm
from tests.schedulers.slurm.campaigns import Sweep, ask, list_queue, start_python, wait_for, when_told
from tests.slurm.cluster import SMALL_MAX_SUBMIT, Cluster
from tests.slurm.fixtures import Slurm

import foretell
from foretell.campaigns.campaign_plan import Progress
from foretell.core.app import Submission
from foretell.core.errors import SchedulerError
from foretell.core.run import State
from foretell.schedulers.slurm import accounting, queue, runner
from foretell.schedulers.slurm import submit as submitting
from foretell.schedulers.slurm import tracking as following

SHORTEST_S = runner._SHORTEST_S
HELD = Submission(options={"hold": ""})
SMALL = Submission(account="small")
EAT = f"{sys.executable} -ISc 'b = bytearray(300 << 20); b[::4096] = b[::4096]; import time; time.sleep(30)'"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_SHORTEST_S", 0.3)
    monkeypatch.setattr(following, "_LAG_S", 8.0)


def get_reasons(sweep: Sweep, state: State) -> set[str]:
    return {run.reason for run in sweep.runs if run.state is state}


class TestCancelledByHand:
    def test_a_running_one_is_not_made_again_unless_asked(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        sweep.hold()

        def cancel_one() -> None:
            slurm.run("scancel", f"{sweep.batches[0]}_1")
            wait_for(lambda: list_queue(sweep.batches[0])["1"] == "CANCELLED")
            sweep.let_go()

        sweep.generate((sweep.has_begun, cancel_one))
        sweep.check({State.COMPLETED: 3, State.CANCELLED: 1})
        assert get_reasons(sweep, State.CANCELLED) == {"cancelled by user 0"}
        assert sweep.generate().completed == 0
        assert sweep.generate(retry_failed=True).completed == 1
        assert sweep.states == {State.COMPLETED: 4}

    def test_a_waiting_one_vanishes(self, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(following, "_LAG_S", 1.0)
        sweep = Sweep.build(tmp_path)
        foretell.generate(sweep.app, submission=HELD)
        (job_id,) = sweep.batches
        slurm.run("scancel", f"{job_id}_1")
        wait_for(lambda: "1" not in list_queue(job_id))
        slurm.run("scontrol", "release", job_id)
        sweep.generate()
        assert sweep.states == {State.COMPLETED: 3, State.CANCELLED: 1}
        assert sweep.batches == []
        (reason,) = get_reasons(sweep, State.CANCELLED)
        assert reason.startswith("cancelled")
        assert "it left the queue before it started" in reason
        assert sweep.diary.total() == 3

    def test_a_whole_array_that_waits(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        foretell.generate(sweep.app, submission=HELD)
        slurm.run("scancel", sweep.batches[0])
        result = sweep.generate()
        assert (result.completed, result.failed) == (0, 4)
        assert get_reasons(sweep, State.CANCELLED) == {"cancelled by user 0"}
        assert (sweep.batches, sweep.diary.total()) == ([], 0)


class TestLimits:
    def test_a_run_past_the_time_slurm_gave_it(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=2, shell="sleep 600")
        sweep.generate((sweep.has_begun, lambda: [slurm.expire(f"{sweep.batches[0]}_{index}") for index in (0, 1)]))
        sweep.check({State.TIMED_OUT: 2})
        for run in sweep.runs:
            assert run.usage is not None  # in whole seconds, which may be none
            assert run.allocated is not None
            assert run.allocated.walltime_s is not None
            assert run.reason.startswith("stopped at its time limit of ")

    def test_a_run_that_takes_more_memory_than_it_asked_for(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=1, shell=EAT, more="resources: {memory: 100MiB}\n")
        sweep.generate()
        sweep.check({State.OUT_OF_MEMORY: 1})
        (run,) = sweep.runs
        assert run.usage is not None
        assert run.usage.peak_memory_bytes is not None
        assert run.usage.peak_memory_bytes >= 100 << 20
        assert run.reason.startswith("used more than the 100 MB of memory")

    @pytest.mark.slurm
    def test_what_a_cluster_with_cgroups_says_of_it(self, slurm_environment: Cluster, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=1, shell="exit 1")
        foretell.generate(sweep.app)
        job = f"{sweep.batches[0]}_0"
        wait_for(lambda: ["FAILED", "60"] in ask("sacct", "-nXP", "-j", job, "-o", "State,TimelimitRaw"))
        slurm_environment.mark_out_of_memory(job)
        assert foretell.status(sweep.app).collected == 1
        sweep.check({State.OUT_OF_MEMORY: 1})


REFUSALS = {
    "account": (["--account", "nobody"], "", "Invalid account", "name one of yours with --account"),
    "partition": (["--partition", "nowhere"], "", "no partition named 'nowhere'. Known: ", "debug"),
    "time": ([], "time_limit: 200h\n", "at most", "ask for less"),
    "memory": ([], "resources: {memory: 900GB}\n", "it asks for 900 GB of memory; a node has", "ask for less"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_refused_is_told_in_one_sentence(
    slurm: Slurm, tmp_path: Path, foretell: Callable[..., Outcome], what: str
) -> None:
    words, more, fault, remedy = REFUSALS[what]
    sweep = Sweep.build(tmp_path, count=2, more=more)
    outcome = foretell("generate", *words, folder=tmp_path)
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert line.startswith("Error: ")
    assert fault in line
    assert remedy in line
    assert (sweep.runs, sweep.batches, sweep.diary.total()) == ([], [], 0)
    assert not list(tmp_path.glob(".foretell/batches/*/*"))


class TestQuota:
    def test_a_campaign_beyond_it_goes_on_in_parts(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=50)
        result = sweep.generate(submission=SMALL)
        sweep.check()
        sweep.check_submitted_once()
        assert result.completed == 50
        assert 3 <= len({job_id.partition("_")[0] for job_id in sweep.list_jobs()}) <= 8

    def test_without_waiting_the_rest_is_held_back(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=25)
        sweep.hold()
        first = foretell.generate(sweep.app, submission=SMALL)
        assert (first.submitted, first.held_back) == (SMALL_MAX_SUBMIT, 5)
        sweep.let_go()
        sweep.generate(submission=SMALL)
        sweep.check()
        sweep.check_submitted_once()

    @pytest.mark.parametrize("others", [15, SMALL_MAX_SUBMIT])
    def test_others_jobs_fill_it(
        self, fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
    ) -> None:
        monkeypatch.setattr(submitting, "_FULL_S", 0.5)
        held = ("--parsable", "--hold", "--account=small", f"--array=1-{others}", "--output=/dev/null")
        job_id = fake_slurm.run("sbatch", *held, "--wrap", "true").strip()
        sweep = Sweep.build(tmp_path, count=12)
        sweep.hold()
        first = foretell.generate(sweep.app, submission=SMALL)
        left = SMALL_MAX_SUBMIT - others
        assert (first.submitted, first.held_back) == (left, 12 - left)
        assert "AssocMaxSubmitJobLimit" in first.notes[0]
        assert f"{12 - left} runs wait for that" in first.notes[0]

        def make_room() -> None:
            sweep.let_go()
            fake_slurm.run("scancel", job_id)

        sweep.generate((when_told("wait for that"), make_room), submission=SMALL)
        sweep.check()
        sweep.check_submitted_once()


class TestOddAnswers:
    def test_a_state_nobody_knows_is_an_error_that_shows_it(self, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
        fake_slurm.set_fault("unknown-state", "MELTED")
        sweep = Sweep.build(tmp_path)
        with pytest.raises(SchedulerError, match="a state we do not know: 'MELTED'"):
            sweep.generate()
        fake_slurm.clear_fault("unknown-state")
        sweep.generate()
        sweep.check()
        sweep.check_submitted_once()

    @pytest.mark.parametrize(("fault", "text"), [("lag", "2"), ("half-rows", "")])
    def test_accounting_that_is_late(
        self, fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, text: str
    ) -> None:
        monkeypatch.setattr(following, "_LAG_S", 4.0)
        fake_slurm.set_fault(fault, text)
        sweep = Sweep.build(tmp_path)
        result = sweep.generate()
        sweep.check()
        assert result.notes == ()
        assert all(run.usage is not None and run.usage.peak_memory_bytes for run in sweep.runs)

    def test_no_accounting_is_said_once(self, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
        fake_slurm.set_fault("accounting-off")
        sweep = Sweep.build(tmp_path, shell="sleep 0.5")
        result = sweep.generate()
        sweep.check()
        assert result.notes == ("this cluster keeps no accounts: what a run uses is what a sampler beside it sees",)
        assert all(run.usage is not None and run.usage.cpu_s is not None for run in sweep.runs)

    def test_a_site_without_arrays_gets_jobs(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        sweep.hold()
        alone = Submission(without=("array",))
        first = foretell.generate(sweep.app, submission=alone)
        assert first.notes == ("this site takes no job arrays: each run is submitted as a job of its own",)
        assert len(set(first.jobs)) == sweep.count
        slurm.run("scancel", first.jobs[0])
        wait_for(lambda: "CANCELLED" in list_queue(first.jobs[0]).values())
        sweep.let_go()
        sweep.generate(submission=alone)
        assert sweep.states == {State.COMPLETED: 3, State.CANCELLED: 1}
        assert sweep.batches == []
        assert sorted(sweep.list_jobs()) == sorted(first.jobs)
        assert {run.job_id for run in sweep.runs} == set(first.jobs)

    def test_a_cluster_that_has_no_arrays_gets_jobs(self, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
        fake_slurm.set_fault("max-array-size", "1")
        sweep = Sweep.build(tmp_path)
        sweep.generate()
        sweep.check()
        sweep.check_submitted_once()


class TestLeaving:
    def test_cancel_keeps_what_has_ended_and_frees_the_rest(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, shell='[ "$PARAM_n" = 0 ] || sleep 600')
        sweep.hold()
        foretell.generate(sweep.app)
        (job_id,) = sweep.batches
        wait_for(lambda: len(sweep.diary) == sweep.count)
        sweep.let_go()
        wait_for(lambda: ["COMPLETED", "60"] in ask("sacct", "-nXP", "-j", job_id, "-o", "State,TimelimitRaw"))
        done = foretell.cancel(sweep.app)
        assert (done.jobs, done.cancelled, done.collected) == ((job_id,), 3, 1)
        assert not {"RUNNING", "PENDING", "COMPLETING"} & set(list_queue(job_id).values())
        assert (sweep.states, sweep.batches) == ({State.COMPLETED: 1}, [])
        sweep.write("true")
        assert sweep.generate(keep_runs=True).completed == 3
        assert sweep.states == {State.COMPLETED: 4}
        assert sweep.diary == {0: 1, 1: 2, 2: 2, 3: 2}

    def test_who_waits_does_not_submit_again_what_somebody_cancels(self, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, shell='[ "$PARAM_n" = 0 ] || sleep 600')

        def has_one(progress: Progress) -> bool:
            return progress.done == 1

        result = sweep.generate((has_one, lambda: foretell.cancel(sweep.app)))
        assert (result.completed, result.failed) == (1, 0)
        assert sweep.diary == {0: 1, 1: 1, 2: 1, 3: 1}
        assert (sweep.states, sweep.batches) == ({State.COMPLETED: 1}, [])

    def test_ctrl_c_leaves_the_jobs_running_and_says_so(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        sweep.hold()
        program = "import sys; from foretell.cli.main import main; sys.argv[0] = 'foretell'; main()"
        with start_python(program, "generate", str(sweep.file), "--wait") as process:
            wait_for(lambda: len(sweep.diary) == sweep.count)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate()
        assert process.returncode == 130, said
        assert "the jobs go on" in said
        assert "Traceback" not in said
        assert set(list_queue(sweep.batches[0]).values()) == {"RUNNING"}
        sweep.let_go()
        sweep.generate()
        sweep.check()
        sweep.check_submitted_once()


def test_slurm_is_asked_seldom_however_many_jobs_there_are(
    fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SHORTEST_S >= 3
    monkeypatch.setattr(runner, "_SHORTEST_S", 1.0)
    asked: dict[str, list[float]] = {"sacct": [], "squeue": []}
    read_jobs, read_queue = accounting.read_jobs, queue.read_queue
    monkeypatch.setattr(
        following, "read_jobs", lambda *a, **k: (asked["sacct"].append(time.monotonic()), read_jobs(*a, **k))[1]
    )
    monkeypatch.setattr(
        queue,
        "read_queue",
        lambda *a, **k: (asked["squeue"].append(time.monotonic()), read_queue(*a, **k))[1],
    )
    sweep = Sweep.build(tmp_path, count=60)
    sweep.generate()
    sweep.check()
    for moments in asked.values():
        assert moments
        assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(moments))


def test_a_run_that_is_always_interrupted_is_left_for_the_next_campaign(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, count=1)
    sweep.hold()

    def fail() -> None:
        for state in ("DOWN", "RESUME"):
            fake_slurm.run("scontrol", "update", "NodeName=o0001", f"State={state}")

    steps = [(lambda _, times=times: sweep.diary.total() == times, fail) for times in (1, 2, 3, 4)]
    result = sweep.generate(*steps, submission=Submission(options={"no-requeue": ""}))
    assert (result.completed, result.failed) == (0, 1)
    assert get_reasons(sweep, State.INTERRUPTED) == {"node fail on o0001"}
    assert sweep.diary.total() == 4
    sweep.let_go()
    assert sweep.generate().completed == 1
    assert (sweep.states, sweep.batches) == ({State.COMPLETED: 1}, [])


def test_what_is_held_is_told(slurm: Slurm, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path)
    foretell.generate(sweep.app, submission=HELD)
    (job_id,) = sweep.batches
    wait_for(lambda: foretell.status(sweep.app).batches[0].queued == sweep.count)
    (note,) = foretell.status(sweep.app).notes
    assert note == f"job {job_id} is held (JobHeldUser); it goes on when released: 'scontrol release {job_id}'"
    slurm.run("scontrol", "release", job_id)
    sweep.generate()
    sweep.check()
