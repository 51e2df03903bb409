"""The contract of all runners for the Slurm runner, on the fake Slurm and on a real cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.runners import RunnerContract
from tests.slurm.fixtures import Slurm

from foretell.schedulers._base import Runner
from foretell.schedulers.slurm.runner import SlurmRunner


class TestSlurmRunner(RunnerContract):
    @pytest.fixture
    def runner(self, slurm: Slurm, tmp_path: Path) -> Iterator[Runner]:
        runner = SlurmRunner(directory=tmp_path / "batches", min_interval_s=0.5)
        yield runner
        runner.stop()
