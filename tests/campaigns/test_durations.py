"""Rough durations for planning."""

from collections.abc import Callable

import numpy as np
import pytest

from foretell.campaigns.planning import estimate_durations
from foretell.core.run import Run, RunSpec, State, Usage

BuildRuns = Callable[..., list[Run]]
BuildSpec = Callable[..., RunSpec]


def test_before_anything_was_measured_nothing_is_known(build_spec: BuildSpec) -> None:
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
def test_from_few_runs_estimates_are_rather_too_long(
    build_spec: BuildSpec, measured: dict[int, float], wanted: dict[int, float]
) -> None:
    runs = [
        Run(spec=build_spec(epochs=epochs), state=State.COMPLETED, usage=Usage(elapsed_s=seconds))
        for epochs, seconds in measured.items()
    ]
    estimates = estimate_durations(runs, [build_spec(epochs=epochs) for epochs in wanted])
    assert estimates is not None
    assert estimates.tolist() == pytest.approx(list(wanted.values()))


def test_numbers_of_any_size_have_an_estimate(build_spec: BuildSpec) -> None:
    run = Run(spec=build_spec(epochs=1), state=State.COMPLETED, usage=Usage(elapsed_s=1.0))
    estimates = estimate_durations([run], [build_spec(epochs=epochs) for epochs in (0, -3, 10**400)])
    assert estimates is not None
    assert np.isfinite(estimates).all()


def test_from_more_runs_longer_ones_are_told(build_runs: BuildRuns, build_spec: BuildSpec) -> None:
    estimates = estimate_durations(build_runs(24), [build_spec(epochs=epochs) for epochs in (1, 10, 50)])
    assert estimates is not None
    assert estimates[0] < estimates[1] < estimates[2]
