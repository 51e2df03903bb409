"""Runs that do not complete, and clusters that refuse jobs: one clear message each, no run lost or made twice."""

import itertools
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Outcome
from tests.fake_slurm.cluster import FakeSlurm
from tests.schedulers.slurm.campaigns import Sweep, ask, list_queue, on_note, start_python, wait_for
from tests.slurm.cluster import SMALL_MAX_SUBMIT, Cluster
from tests.slurm.fixtures import Slurm

import foretell
from foretell.campaigns.campaign_plan import Progress
from foretell.core.app import Submission
from foretell.core.errors import SchedulerError
from foretell.core.run import State
from foretell.schedulers.slurm import job_status, runner, submit, tracking

pytestmark = pytest.mark.slow

SHORTEST_S = runner._MIN_INTERVAL_S
HELD = Submission(options={"hold": ""})
SMALL = Submission(account="small")
EAT = f"{sys.executable} -ISc 'b = bytearray(300 << 20); b[::4096] = b[::4096]; import time; time.sleep(30)'"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 0.3)
    monkeypatch.setattr(tracking, "_LAG_S", 8.0)


def get_reasons(sweep: Sweep, state: State) -> set[str]:
    return {run.reason for run in sweep.runs if run.state is state}


class TestCancelledByHand:
    def test_a_cancelled_run_is_made_again_only_on_request(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        sweep.hold()

        def cancel_one() -> None:
            slurm.run("scancel", f"{sweep.batches[0]}_1")
            wait_for(lambda: list_queue(sweep.batches[0])["1"] == "CANCELLED")
            sweep.release()

        sweep.generate((sweep.has_started, cancel_one))
        sweep.check({State.COMPLETED: 3, State.CANCELLED: 1})
        assert get_reasons(sweep, State.CANCELLED) == {"cancelled by user 0"}
        assert sweep.generate().completed == 0
        assert sweep.generate(retry_failed=True).completed == 1
        assert sweep.states == {State.COMPLETED: 4}

    def test_a_cancelled_queued_run(self, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tracking, "_LAG_S", 1.0)
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

    def test_a_cancelled_queued_array(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        foretell.generate(sweep.app, submission=HELD)
        slurm.run("scancel", sweep.batches[0])
        result = sweep.generate()
        assert (result.completed, result.failed) == (0, 4)
        assert get_reasons(sweep, State.CANCELLED) == {"cancelled by user 0"}
        assert (sweep.batches, sweep.diary.total()) == ([], 0)


class TestLimits:
    def test_a_run_over_slurms_time_limit(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=2, shell="sleep 600")
        sweep.generate((sweep.has_started, lambda: [slurm.expire(f"{sweep.batches[0]}_{index}") for index in (0, 1)]))
        sweep.check({State.TIMED_OUT: 2})
        for run in sweep.runs:
            assert run.usage is not None  # in whole seconds, which may be none
            assert run.allocated is not None
            assert run.allocated.walltime_s is not None
            assert run.reason.startswith("stopped at its time limit of ")

    def test_a_run_over_its_requested_memory(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=1, shell=EAT, more="resources: {memory: 100MiB}\n")
        sweep.generate()
        sweep.check({State.OUT_OF_MEMORY: 1})
        (run,) = sweep.runs
        assert run.usage is not None
        assert run.usage.peak_memory_bytes is not None
        assert run.usage.peak_memory_bytes >= 100 << 20
        assert run.reason.startswith("used more than the requested 100 MB of memory")

    @pytest.mark.slurm
    def test_out_of_memory_on_a_cluster_with_cgroups(self, slurm_environment: Cluster, tmp_path: Path) -> None:
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
    "time": ([], "time_limit: 200h\n", "the limit is", "reduce 'resources'"),
    "memory": ([], "resources: {memory: 900GB}\n", "it requests 900 GB of memory; a node has", "reduce 'resources'"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_is_one_sentence(slurm: Slurm, tmp_path: Path, foretell: Callable[..., Outcome], what: str) -> None:
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
    def test_a_campaign_over_the_limit_is_submitted_in_parts(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=50)
        result = sweep.generate(submission=SMALL)
        sweep.check()
        sweep.check_submitted_once()
        assert result.completed == 50
        assert 3 <= len({job_id.partition("_")[0] for job_id in sweep.list_jobs()}) <= 8

    def test_without_waiting_the_rest_is_not_submitted(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, count=25)
        sweep.hold()
        first = foretell.generate(sweep.app, submission=SMALL)
        assert (first.submitted, first.held_back) == (SMALL_MAX_SUBMIT, 5)
        sweep.release()
        sweep.generate(submission=SMALL)
        sweep.check()
        sweep.check_submitted_once()

    @pytest.mark.parametrize("others", [15, SMALL_MAX_SUBMIT])
    def test_jobs_of_others_fill_the_limit(
        self, fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
    ) -> None:
        monkeypatch.setattr(submit, "_FULL_S", 0.5)
        held = ("--parsable", "--hold", "--account=small", f"--array=1-{others}", "--output=/dev/null")
        job_id = fake_slurm.run("sbatch", *held, "--wrap", "true").strip()
        sweep = Sweep.build(tmp_path, count=12)
        sweep.hold()
        first = foretell.generate(sweep.app, submission=SMALL)
        left = SMALL_MAX_SUBMIT - others
        assert (first.submitted, first.held_back) == (left, 12 - left)
        assert "AssocMaxSubmitJobLimit" in first.notes[0]
        assert f"{12 - left} runs wait for it" in first.notes[0]

        def finish_other_jobs() -> None:
            sweep.release()
            fake_slurm.run("scancel", job_id)

        sweep.generate((on_note("wait for it"), finish_other_jobs), submission=SMALL)
        sweep.check()
        sweep.check_submitted_once()


class TestUnusualClusters:
    def test_an_unknown_state_is_an_error(self, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
        fake_slurm.set_fault("unknown-state", "MELTED")
        sweep = Sweep.build(tmp_path)
        with pytest.raises(SchedulerError, match="an unknown state: 'MELTED'"):
            sweep.generate()
        fake_slurm.clear_fault("unknown-state")
        sweep.generate()
        sweep.check()
        sweep.check_submitted_once()

    @pytest.mark.parametrize(("fault", "text"), [("lag", "2"), ("half-rows", "")])
    def test_late_accounting(
        self, fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, text: str
    ) -> None:
        monkeypatch.setattr(tracking, "_LAG_S", 4.0)
        fake_slurm.set_fault(fault, text)
        sweep = Sweep.build(tmp_path)
        result = sweep.generate()
        sweep.check()
        assert result.notes == ()
        assert all(run.usage is not None and run.usage.peak_memory_bytes for run in sweep.runs)

    def test_missing_accounting_is_reported_once(self, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
        fake_slurm.set_fault("accounting-off")
        sweep = Sweep.build(tmp_path, shell="sleep 0.5")
        result = sweep.generate()
        sweep.check()
        assert result.notes == ("this cluster has no accounting; usage is measured by a sampler in each job",)
        assert all(run.usage is not None and run.usage.cpu_s is not None for run in sweep.runs)

    def test_a_site_without_arrays_gets_single_jobs(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        sweep.hold()
        alone = Submission(without=("array",))
        first = foretell.generate(sweep.app, submission=alone)
        assert first.notes == ("this site does not accept job arrays: each run is submitted as a separate job",)
        assert len(set(first.jobs)) == sweep.count
        slurm.run("scancel", first.jobs[0])
        wait_for(lambda: "CANCELLED" in list_queue(first.jobs[0]).values())
        sweep.release()
        sweep.generate(submission=alone)
        assert sweep.states == {State.COMPLETED: 3, State.CANCELLED: 1}
        assert sweep.batches == []
        assert sorted(sweep.list_jobs()) == sorted(first.jobs)
        assert {run.job_id for run in sweep.runs} == set(first.jobs)

    def test_a_cluster_without_arrays_gets_single_jobs(self, fake_slurm: FakeSlurm, tmp_path: Path) -> None:
        fake_slurm.set_fault("max-array-size", "1")
        sweep = Sweep.build(tmp_path)
        sweep.generate()
        sweep.check()
        sweep.check_submitted_once()


class TestInterrupting:
    def test_cancel_keeps_finished_runs_and_releases_the_rest(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path, shell='[ "$PARAM_n" = 0 ] || sleep 600')
        sweep.hold()
        foretell.generate(sweep.app)
        (job_id,) = sweep.batches
        wait_for(lambda: len(sweep.diary) == sweep.count)
        sweep.release()
        wait_for(lambda: ["COMPLETED", "60"] in ask("sacct", "-nXP", "-j", job_id, "-o", "State,TimelimitRaw"))
        done = foretell.cancel(sweep.app)
        assert (done.jobs, done.cancelled, done.collected) == ((job_id,), 3, 1)
        assert not {"RUNNING", "PENDING", "COMPLETING"} & set(list_queue(job_id).values())
        assert (sweep.states, sweep.batches) == ({State.COMPLETED: 1}, [])
        sweep.write("true")
        assert sweep.generate(keep_runs=True).completed == 3
        assert sweep.states == {State.COMPLETED: 4}
        assert sweep.diary == {0: 1, 1: 2, 2: 2, 3: 2}

    def test_cancelled_runs_are_not_submitted_again_by_a_waiting_campaign(
        self, fake_slurm: FakeSlurm, tmp_path: Path
    ) -> None:
        sweep = Sweep.build(tmp_path, shell='[ "$PARAM_n" = 0 ] || sleep 600')

        def has_one(progress: Progress) -> bool:
            return progress.done == 1

        result = sweep.generate((has_one, lambda: foretell.cancel(sweep.app)))
        assert (result.completed, result.failed) == (1, 0)
        assert sweep.diary == {0: 1, 1: 1, 2: 1, 3: 1}
        assert (sweep.states, sweep.batches) == ({State.COMPLETED: 1}, [])

    def test_ctrl_c_leaves_the_jobs_running(self, slurm: Slurm, tmp_path: Path) -> None:
        sweep = Sweep.build(tmp_path)
        sweep.hold()
        program = "import sys; from foretell.cli.main import main; sys.argv[0] = 'foretell'; main()"
        with start_python(program, "generate", str(sweep.file), "--wait") as process:
            wait_for(lambda: len(sweep.diary) == sweep.count)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate()
        assert process.returncode == 130, said
        assert "the jobs continue" in said
        assert "Traceback" not in said
        assert set(list_queue(sweep.batches[0]).values()) == {"RUNNING"}
        sweep.release()
        sweep.generate()
        sweep.check()
        sweep.check_submitted_once()


def test_slurm_is_polled_rarely_for_any_number_of_jobs(
    fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SHORTEST_S >= 3
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 1.0)
    asked: dict[str, list[float]] = {"sacct": [], "squeue": []}
    read_jobs, read_queue = job_status.read_jobs, job_status.read_queue
    monkeypatch.setattr(
        tracking, "read_jobs", lambda *a, **k: (asked["sacct"].append(time.monotonic()), read_jobs(*a, **k))[1]
    )
    monkeypatch.setattr(
        job_status,
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
    sweep.release()
    assert sweep.generate().completed == 1
    assert (sweep.states, sweep.batches) == ({State.COMPLETED: 1}, [])


def test_held_jobs_are_reported(slurm: Slurm, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path)
    foretell.generate(sweep.app, submission=HELD)
    (job_id,) = sweep.batches
    wait_for(lambda: foretell.status(sweep.app).batches[0].queued == sweep.count)
    (note,) = foretell.status(sweep.app).notes
    assert note == f"job {job_id} is held (JobHeldUser); release it with 'scontrol release {job_id}'"
    slurm.run("scontrol", "release", job_id)
    sweep.generate()
    sweep.check()
