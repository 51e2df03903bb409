"""The examples' promise to be quick, as far as it can be told without running them."""

from collections.abc import Callable

import pytest

from foretell.apps.sweep import build_sweep
from foretell.core.app import App, Scale


@pytest.mark.parametrize(("name", "scaled_down", "full_scale"), [("fcnet", 32, 16), ("stencil", 12, 8)])
def test_size(name: str, scaled_down: int, full_scale: int, load_example: Callable[[str], App]) -> None:
    scales = [spec.scale for spec in build_sweep(load_example(name))]
    assert [scales.count(Scale.SCALED_DOWN), scales.count(Scale.FULL_SCALE)] == [scaled_down, full_scale]


@pytest.mark.parametrize("name", ["fcnet", "stencil"])
def test_full_scale_runs_stand_at_the_ends_of_every_target_range_but_the_batch_size(
    name: str, load_example: Callable[[str], App]
) -> None:
    for parameter in load_example(name).parameters:
        if parameter.name != "batch_size" and parameter.target is not None and parameter.target.low is not None:
            assert {parameter.target.low, parameter.target.high} <= set(parameter.full_scale.values)
