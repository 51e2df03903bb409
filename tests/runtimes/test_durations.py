"""Rough durations for planning."""

import numpy as np
import pytest

from foretell.core.run import Run, RunSpec, State, Usage
from foretell.runtimes.durations import estimate_durations


def build_spec(*, epochs: int = 20, size: float = 100.0) -> RunSpec:
    return RunSpec(app="demo", parameters={"epochs": epochs, "size": size})


def build_runs(count: int) -> list[Run]:
    """Runs that take 3 + epochs * size / 100 seconds, with 2 % noise."""
    draw = np.random.default_rng(0)
    specs = [build_spec(epochs=int(draw.integers(1, 60)), size=float(draw.uniform(10, 400))) for _ in range(count)]
    return [
        Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=_compute_s(spec) * draw.lognormal(0, 0.02)))
        for spec in specs
    ]


def _compute_s(spec: RunSpec) -> float:
    epochs, size = spec.parameters["epochs"], spec.parameters["size"]
    assert isinstance(epochs, int)
    assert isinstance(size, float)
    return 3 + epochs * size / 100


def test_without_runs_durations_are_unknown() -> None:
    assert estimate_durations([], [build_spec()]) is None


@pytest.mark.parametrize(
    ("measured", "wanted"),
    [
        ({10: 4.0}, {5: 4.0, 10: 4.0, 30: 12.0}),
        ({10: 4.0, 20: 4.0}, {5: 4.0, 15: 4.0, 60: 12.0}),
        ({10: 1.0, 20: 8.0}, {5: 1.0, 15: 8.0, 40: 64.0}),
    ],
    ids=["one", "no growth seen", "cubic"],
)
def test_estimates_from_few_runs_are_high(measured: dict[int, float], wanted: dict[int, float]) -> None:
    runs = [
        Run(spec=build_spec(epochs=epochs), state=State.COMPLETED, usage=Usage(elapsed_s=seconds))
        for epochs, seconds in measured.items()
    ]
    estimates = estimate_durations(runs, [build_spec(epochs=epochs) for epochs in wanted])
    assert estimates is not None
    assert estimates.tolist() == pytest.approx(list(wanted.values()))


def test_numbers_of_any_size_have_an_estimate() -> None:
    run = Run(spec=build_spec(epochs=1), state=State.COMPLETED, usage=Usage(elapsed_s=1.0))
    estimates = estimate_durations([run], [build_spec(epochs=epochs) for epochs in (0, -3, 10**400)])
    assert estimates is not None
    assert np.isfinite(estimates).all()


def test_more_runs_predict_longer_ones() -> None:
    estimates = estimate_durations(build_runs(24), [build_spec(epochs=epochs) for epochs in (1, 10, 50)])
    assert estimates is not None
    assert estimates[0] < estimates[1] < estimates[2]
