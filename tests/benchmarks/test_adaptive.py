"""The replay of sweeps: what it counts, on courses we chose."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.adaptive import Course, Oracle, list_sets, make_run, make_spec, replay_adaptive, replay_cheapest

from foretell.core.app import Scale


def test_the_sweeps_error_is_reached_where_it_lasts() -> None:
    shares = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 1.0])
    errors = np.array([0.9, 0.05, 0.5, 0.105, 0.11, 0.1])
    assert Course(shares=shares, errors=errors).reached == 0.4
    assert Course(shares=shares, errors=np.array([0.9] * 5 + [0.1])).reached == 1.0


def test_every_order_ends_with_the_whole_sweep_and_the_same_error() -> None:
    specs = [make_spec({"n": n}, Scale.SCALED_DOWN) for n in range(1, 13)]
    runs = {spec.id: make_run(spec, 2.0 * float(spec.parameters["n"])) for spec in specs}
    questions = [make_spec({"n": n}, Scale.FULL_SCALE) for n in (20, 30)]
    oracle = Oracle(options=runs, questions=questions, answers=np.array([40.0, 60.0]))
    courses = [replay(oracle, 0) for replay in (replay_adaptive, replay_cheapest)]
    assert [course.shares[-1] for course in courses] == [pytest.approx(1.0)] * 2
    assert courses[0].errors[-1] == courses[1].errors[-1] < 0.05


def test_without_data_the_examples_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_DATA", str(tmp_path))
    assert [name for name, _ in list_sets()] == ["fcnet's law", "stencil's law"]
