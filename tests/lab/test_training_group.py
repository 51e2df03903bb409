"""Real trainings of a tiny network by all-reduce and parameter servers, and failures."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lab.links import LOOPBACK, Links, Node
from lab.training_group import TrainingGroup, open_group
from lab.training_jobs import TrainedNetwork, TrainingJob

from foretell.core.errors import RunnerError
from foretell.distributed.consumption import Setting, Strategy

NET = """
from torch import nn


def build_model(width: int = 8):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 3))
"""
SERVED = Setting(strategy=Strategy.SERVERS, workers=2, servers=1)
SETTINGS = {
    "allreduce": Setting(workers=2),
    "servers": SERVED,
    "asynchronous": replace(SERVED, synchronous=False),
    "two servers": replace(SERVED, workers=1, servers=2),
    "alone": Setting(workers=1),
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def group() -> Iterator[TrainingGroup]:
    """Three members on this machine itself."""
    with open_group(Links([Node(address="127.0.0.1", interface=LOOPBACK)] * 3)) as group:
        yield group


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    path = tmp_path_factory.mktemp("training") / "net.py"
    path.write_text(NET)
    network = TrainedNetwork(source=f"{path}:build_model", inputs=("4,16",), arguments=(("width", 6),))
    return TrainingJob(network=network, batch=4, setting=SETTINGS["allreduce"], seconds=0.01)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_training_runs_and_reports(group: TrainingGroup, job: TrainingJob, name: str) -> None:
    asked = replace(job, setting=SETTINGS[name])
    pid = group.start(asked)
    trained = group.finish(asked)
    assert pid > 0
    assert not Path(f"/proc/{pid}").exists()
    assert len(trained.began_s) > 10
    assert list(trained.began_s) == sorted(trained.began_s)
    assert trained.alone_s > 0
    assert all(phase > 0 for phase in trained.phases_s)


def test_a_random_network_is_trained_too(group: TrainingGroup, job: TrainingJob) -> None:
    asked = replace(job, network=TrainedNetwork(number=1, seed=7), batch=2)
    group.start(asked)
    assert group.finish(asked).alone_s > 0


def test_a_failure_is_reported_and_the_next_job_runs(group: TrainingGroup, job: TrainingJob) -> None:
    wrong = replace(job, network=replace(job.network, inputs=("4,17",)))
    group.start(wrong)
    with pytest.raises(RunnerError, match=r"a member of the training failed: .*17"):
        group.finish(wrong)
    group.start(job)
    assert group.finish(job).alone_s > 0


def test_more_members_than_nodes_are_refused(group: TrainingGroup, job: TrainingJob) -> None:
    with pytest.raises(RunnerError, match="4 workers and servers need 4 nodes; there are 3"):
        group.start(replace(job, setting=replace(SERVED, workers=3)))


def test_a_link_is_refused_here(group: TrainingGroup, job: TrainingJob) -> None:
    with pytest.raises(RunnerError, match="cannot be limited to 80 Mb/s"):
        group.start(replace(job, setting=Setting(workers=2, link_bytes_per_s=1e7)))
