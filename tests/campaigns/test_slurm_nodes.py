"""Nodes fail during runs: these runs are not used for fitting and are made again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.schedulers.slurm.campaigns import Sweep
from tests.slurm.cluster import Cluster

from foretell.core.app import Submission
from foretell.core.run import State
from foretell.schedulers.slurm import runner

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 0.3)


@pytest.fixture
def cluster(own_slurm_environment: Cluster) -> Iterator[Cluster]:
    yield own_slurm_environment
    own_slurm_environment._resume_nodes()


def set_down(cluster: Cluster, sweep: Sweep) -> None:
    """Let both nodes of the partition fail with all runs on them, then return to service."""
    sweep.release()
    for node in ("o0001", "o0002"):
        cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    for node in ("o0001", "o0002"):
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


@pytest.mark.parametrize("options", [{}, {"no-requeue": ""}], ids=["requeued by Slurm", "made again by us"])
def test_runs_on_a_failed_node_complete_later(cluster: Cluster, tmp_path: Path, options: dict[str, str]) -> None:
    sweep = Sweep.build(tmp_path, count=3)
    sweep.hold()
    seen = []
    result = sweep.generate(
        (sweep.has_started, lambda: set_down(cluster, sweep)),
        (lambda progress: seen.append(progress.last) if progress.last else None, lambda: None),
        submission=Submission(options=options),
    )
    assert (result.completed, result.failed) == (3, 0)
    sweep.check(begun=2)
    jobs = {job_id.partition("_")[0] for job_id in sweep.list_jobs()}
    assert len(jobs) == (2 if options else 1)
    assert (State.INTERRUPTED in {run.state for run in seen}) == bool(options)
