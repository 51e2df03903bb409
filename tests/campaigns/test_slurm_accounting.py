"""Campaigns while Slurm's accounting is down, temporarily or permanently."""

import sys
from pathlib import Path

import pytest
from tests.schedulers.slurm.campaigns import Sweep, on_note, wait_for
from tests.slurm.cluster import Cluster

from foretell.schedulers.slurm import runner, tracking

pytestmark = pytest.mark.slurm
EAT = f"{sys.executable} -ISc 'b = bytearray(64 << 20); b[::4096] = b[::4096]; import time; time.sleep(2)'"
SILENT = "accounting does not respond"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 0.3)


@pytest.fixture
def cluster(own_slurm_environment: Cluster) -> Cluster:
    own_slurm_environment.start_daemon("slurmdbd")
    return own_slurm_environment


def test_runs_that_end_during_an_outage_are_collected_with_their_memory(cluster: Cluster, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, count=3, shell=EAT)
    result = sweep.generate(
        (sweep.has_started, lambda: cluster.kill("slurmdbd")),
        (on_note(SILENT), lambda: cluster.start_daemon("slurmdbd")),
    )
    sweep.check()
    sweep.check_submitted_once()
    for run in sweep.runs:
        assert run.usage is not None
        assert run.usage.peak_memory_bytes is not None
        assert run.usage.peak_memory_bytes > 64 << 20
        assert run.reason == ""
    assert len(result.notes) == 1
    assert SILENT in result.notes[0]
    assert "Problem talking to the database: Connection refused" in result.notes[0]


def test_without_accounting_the_records_of_jobs_are_used(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_OUTAGE_S", 2.0)
    sweep = Sweep.build(tmp_path, count=3, shell="sleep 0.5; exit $PARAM_n")
    cluster.kill("slurmdbd")
    result = sweep.generate()
    assert (result.completed, result.failed) == (1, 2)
    assert sweep.batches == []
    for run in sweep.runs:
        assert run.exit_code == run.spec.parameters["n"]
        assert run.reason.endswith("accounting did not respond: the record of the job script was used")
        assert run.usage is not None
        assert run.usage.elapsed_s >= 0.5
    cluster.start_daemon("slurmdbd")
    wait_for(lambda: len(sweep.list_jobs()) == sweep.count)
