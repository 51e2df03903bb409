"""Slurm's controller is killed and restarted: before a campaign, while it is submitted, while it runs."""

import shutil
from pathlib import Path

import pytest
from tests.schedulers.slurm.campaigns import Sweep, list_queue, on_note, wait_for
from tests.slurm.cluster import Cluster

import foretell
from foretell.core.errors import SchedulerError
from foretell.schedulers.slurm import runner, tracking

pytestmark = pytest.mark.slurm
SILENT = "Unable to contact slurm controller"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 0.3)


@pytest.fixture
def cluster(own_slurm_environment: Cluster) -> Cluster:
    own_slurm_environment.start_daemon("slurmctld")
    return own_slurm_environment


def test_killed_and_restarted_while_runs_are_under_way(cluster: Cluster, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path)
    sweep.hold()

    def kill() -> None:
        cluster.wait_until_saved()
        cluster.kill("slurmctld")

    def restart() -> None:
        cluster.start_daemon("slurmctld")
        sweep.release()  # not before: Slurm may miss for minutes that a job ended while its controller started

    result = sweep.generate((sweep.has_started, kill), (on_note(SILENT), restart))
    sweep.check()
    sweep.check_submitted_once()
    assert result.notes == (f"squeue: slurm_load_jobs error: {SILENT} (connect failure); retrying",)


def test_without_a_controller_nothing_is_submitted(cluster: Cluster, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path)
    cluster.kill("slurmctld")
    with pytest.raises(SchedulerError, match=SILENT) as caught:
        foretell.generate(sweep.app)
    assert caught.value.transient
    assert (sweep.runs, sweep.batches) == ([], [])


def test_a_submission_during_an_outage_is_resolved_afterwards(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.build(tmp_path)
    build = runner._find_max

    def kill_and_build(*words: object) -> int:
        most = build(*words)  # type: ignore[arg-type]
        cluster.kill("slurmctld")
        return most

    monkeypatch.setattr(runner, "_find_max", kill_and_build)
    result = sweep.generate((on_note("whether the jobs were submitted"), lambda: cluster.start_daemon("slurmctld")))
    sweep.check()
    sweep.check_submitted_once()
    assert result.notes[0].startswith(f"sbatch: Batch job submission failed: {SILENT} (connect failure); it is checked")
    assert result.notes[-1].endswith("had not reached Slurm and was submitted again")


def test_runs_of_forgotten_jobs_are_made_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_LAG_S", 1.0)
    sweep = Sweep.build(tmp_path)
    cluster.run("scontrol", "update", "PartitionName=owens", "State=DOWN")  # they wait
    cluster.wait_until_saved()
    saved = cluster.folder / "saved"
    shutil.copytree(cluster.folder / "slurmctld", saved)
    foretell.generate(sweep.app)
    (job_id,) = sweep.batches
    wait_for(lambda: len(list_queue(job_id)) == sweep.count)
    cluster.kill("slurmctld")
    shutil.rmtree(cluster.folder / "slurmctld")
    saved.rename(cluster.folder / "slurmctld")
    cluster.start_daemon("slurmctld")
    assert list_queue(job_id) == {}
    cluster.run("scontrol", "update", "PartitionName=owens", "State=UP")
    sweep.generate()
    sweep.check()
