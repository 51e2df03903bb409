from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.apps.app_file import parse_app
from foretell.core.app import App
from foretell.core.errors import Mistake, SpecError

EXAMPLE = r"""
name: fcnet
command: [python, "{app_dir}/train.py", --epochs, "{epochs}", --batch-size, "{batch_size}", --dataset, "{dataset}"]
parameters:
  epochs: {type: integer, sd: [1, 2, 4], fs: [20, 40], target: {from: 10, to: 200}}
  batch_size: {type: integer, sd: {from: 16, to: 256, count: 5, spacing: log}, fs: [64, 256]}
  dataset: {values: [mnist, cifar]}
resources:
  cores: {sd: [1, 2], fs: 2}
  memory: 2GB
environment: {OMP_NUM_THREADS: "{cores}"}
setup: [[mkdir, -p, data]]
cleanup: [[rm, -rf, data]]
repetitions: 2
time_limit: 10m
phases:
  epoch: {pattern: 'epoch \d+: ([0-9.]+) s', combine: mean}
  startup: {file: phases.json}
estimate: startup + epochs * epoch
"""


@pytest.fixture
def example_text() -> str:
    return EXAMPLE


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], App]:
    def read(text: str) -> App:
        return parse_app(text, source="foretell.yaml", directory=tmp_path)

    return read


@pytest.fixture
def example(read: Callable[[str], App]) -> App:
    return read(EXAMPLE)


@pytest.fixture
def find_mistakes(read: Callable[[str], App]) -> Callable[[str], tuple[Mistake, ...]]:
    def find(text: str) -> tuple[Mistake, ...]:
        with pytest.raises(SpecError) as caught:
            read(text)
        return caught.value.mistakes

    return find
