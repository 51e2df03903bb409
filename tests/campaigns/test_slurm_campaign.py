"""A large campaign on a real cluster, with arrays and accounting."""

from collections import Counter
from pathlib import Path

import pytest
from tests.schedulers.slurm.campaigns import Sweep, ask, wait_for
from tests.slurm.cluster import Cluster

import foretell
from foretell.core.run import State

COUNT = 100


@pytest.mark.slurm
@pytest.mark.slow
def test_two_hundred_runs_are_two_arrays_with_complete_accounting(slurm_environment: Cluster, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, count=COUNT, more="resources: {cores: [1, 2], memory: [40MB]}\n")
    result = sweep.generate()
    assert (result.completed, result.failed, result.submitted) == (2 * COUNT, 0, 0)
    assert sweep.diary == Counter(dict.fromkeys(range(COUNT), 2))
    assert sweep.batches == []
    runs = sweep.runs
    assert len({run.job_id for run in runs}) == 2 * COUNT
    assert len({run.job_id.partition("_")[0] for run in runs}) == 2
    assert all(run.allocated is not None and run.allocated.cores == run.spec.allocation.cores for run in runs)
    wait_for(lambda: len(sweep.list_jobs()) == 2 * COUNT)
    job_ids = ",".join({run.job_id.partition("_")[0] for run in runs})
    seconds = {row[0]: int(row[1]) for row in ask("sacct", "-nXP", "-j", job_ids, "-o", "JobID,ElapsedRaw")}
    for run in runs:
        assert run.state is State.COMPLETED
        assert run.usage is not None
        assert run.usage.elapsed_s == pytest.approx(seconds[run.job_id], abs=1.5)
    assert foretell.plan(sweep.app).specs == ()
