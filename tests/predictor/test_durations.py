"""Rough durations for planning."""

from collections.abc import Callable

import numpy as np
import pytest

from foretell.entities.run import Run, RunSpec
from foretell.predictor.durations import estimate_durations

BuildRuns = Callable[..., list[Run]]
BuildSpec = Callable[..., RunSpec]


def test_before_anything_was_measured_nothing_is_known(build_spec: BuildSpec) -> None:
    assert estimate_durations([], [build_spec()]) is None


def test_from_few_runs_all_take_the_usual_time(build_runs: BuildRuns, build_spec: BuildSpec) -> None:
    runs = build_runs(3)
    estimates = estimate_durations(runs, [build_spec(epochs=1), build_spec(epochs=50)])
    assert estimates is not None
    assert estimates.tolist() == [pytest.approx(np.median([run.usage.elapsed_s for run in runs if run.usage]))] * 2


def test_from_more_runs_longer_ones_are_told(build_runs: BuildRuns, build_spec: BuildSpec) -> None:
    estimates = estimate_durations(build_runs(24), [build_spec(epochs=epochs) for epochs in (1, 10, 50)])
    assert estimates is not None
    assert estimates[0] < estimates[1] < estimates[2]
