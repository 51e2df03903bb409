import json
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from foretell.core.app import App, Value

TINY: dict[str, Value] = {"dataset": "mnist", "samples": 200, "hidden": 16, "batch_size": 10, "epochs": 3}


def _measured(app: App, output: str) -> dict[str, list[float]]:
    return {
        phase.name: [float(match) for match in re.findall(phase.pattern, output)]
        for phase in app.phases
        if phase.pattern is not None
    }


class TestAppFile:
    def test_its_command_prints_what_its_phases_match(
        self, load_example: Callable[[str], App], run_example: Callable[[App, Mapping[str, Value]], str], tmp_path: Path
    ) -> None:
        app = load_example("fcnet")
        measured = _measured(app, run_example(app, TINY))
        assert [len(measured["startup"]), len(measured["epoch"])] == [1, 3]
        written = json.loads((tmp_path / "phases.json").read_text())
        assert written["startup"] == pytest.approx(measured["startup"][0], abs=1e-3)
        assert written["epoch"] == pytest.approx(np.mean(measured["epoch"]), abs=1e-3)


class TestTraining:
    @pytest.mark.parametrize("dataset", ["mnist", "cifar"])
    def test_learns(
        self, dataset: str, run_script: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
    ) -> None:
        options = ["--dataset", dataset, "--samples", "1000", "--hidden", "32", "--batch-size", "20", "--epochs", "5"]
        done = run_script("fcnet/train.py", *options)
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]
        assert losses == sorted(losses, reverse=True)
        assert json.loads((tmp_path / "phases.json").read_text())["accuracy"] > 0.3  # chance is 0.1

    def test_the_same_seed_gives_the_same_losses(
        self, run_script: Callable[..., subprocess.CompletedProcess[str]]
    ) -> None:
        losses = [
            re.findall(r"loss [0-9.]+", run_script("fcnet/train.py", "--samples", "100", "--seed", seed).stdout)
            for seed in ("1", "1", "2")
        ]
        assert losses[0] == losses[1] != losses[2]

    def test_gradients_agree_with_differences_of_the_loss(self, import_script: Callable[[str], ModuleType]) -> None:
        train = import_script("fcnet/train.py")
        rng = np.random.default_rng(0)
        network = train.Network([6, 5, 4, train.CLASSES], rng)
        for group in (network.parameters, network.gradients):
            group[:] = [array.astype(np.float64) for array in group]
        depth = len(network.weights)
        network.weights, network.biases = network.parameters[:depth], network.parameters[depth:]
        pixels, labels = rng.standard_normal((8, 6)), rng.integers(train.CLASSES, size=8)
        rows = np.arange(8)

        def loss() -> float:
            return float(-np.log(train.softmax(network.forward(pixels)[-1])[rows, labels]).mean())

        values = network.forward(pixels)
        error = train.softmax(values[-1])
        error[rows, labels] -= 1
        network.backward(values, error / 8)
        for parameter, gradient in zip(network.parameters, network.gradients, strict=True):
            place = (0,) * parameter.ndim
            before = parameter[place]
            parameter[place] = before + 1e-6
            above = loss()
            parameter[place] = before - 1e-6
            slope = (above - loss()) / 2e-6
            parameter[place] = before
            assert gradient[place] == pytest.approx(slope, abs=1e-6)
