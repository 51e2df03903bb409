"""A cluster without accounting: results are from the records of jobs and the queue."""

from pathlib import Path

import pytest
from tests.schedulers.slurm.campaigns import Sweep, list_queue
from tests.slurm.cluster import Cluster

from foretell.campaigns.campaign_plan import Progress
from foretell.core.run import State
from foretell.schedulers.slurm import runner

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 0.3)


def test_runs_are_sampled_and_that_is_reported_once(bare_slurm_environment: Cluster, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, shell='sleep 0.5; [ "$PARAM_n" != 3 ]')
    result = sweep.generate()
    sweep.check({State.COMPLETED: 3, State.FAILED: 1})
    assert result.notes == ("this cluster has no accounting; usage is measured by a sampler in each job",)
    for run in sweep.runs:
        assert run.usage is not None
        assert run.usage.elapsed_s >= 0.5
        assert run.usage.cpu_s is not None
        assert run.allocated is None
        assert run.reason in ("", "ended with exit code 1")


def test_one_run_is_cancelled_and_one_is_requeued(bare_slurm_environment: Cluster, tmp_path: Path) -> None:
    cluster = bare_slurm_environment
    sweep = Sweep.build(tmp_path, count=2)
    sweep.hold()

    def cancel_one_and_requeue_the_other() -> None:
        cluster.run("scancel", f"{sweep.batches[0]}_0")
        cluster.run("scontrol", "requeue", f"{sweep.batches[0]}_1")

    def is_one_cancelled_and_the_other_requeued(_: Progress) -> bool:
        """Return whether runs may end now: one that ended before Slurm kills it would not be cancelled."""
        is_gone = list_queue(sweep.batches[0]).get("0", "CANCELLED") == "CANCELLED"
        return is_gone and sorted(sweep.diary.values()) == [1, 2]

    sweep.generate(
        (sweep.has_started, cancel_one_and_requeue_the_other), (is_one_cancelled_and_the_other_requeued, sweep.release)
    )
    assert sweep.states == {State.CANCELLED: 1, State.COMPLETED: 1}
    assert sweep.batches == []
