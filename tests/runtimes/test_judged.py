"""Which rows are judged, and by fits that saw what."""

import numpy as np

from foretell.runtimes.recipes import Recipe, TrainingSet
from foretell.runtimes.selection import select


def _build(*, small: int, large: int) -> TrainingSet:
    """Full-scale runs take ten times as long as the scaled-down ones say; only full-scale runs show it."""
    rows = small + large
    draw = np.random.default_rng(0)
    full = np.arange(rows) >= small
    size = draw.uniform(1, 10, rows)
    return TrainingSet(
        X=np.column_stack([size, full]),
        y=size * np.where(full, 10.0, 1.0) * draw.lognormal(0, 0.01, rows),
        unit=np.ones(rows),
        full_scale=full,
        censored=np.zeros(rows, dtype=bool),
        group=np.arange(rows, dtype=np.int64),
    )


def test_few_full_scale_runs_are_never_all_left_out_at_once() -> None:
    selected = select(_build(small=300, large=30), [Recipe(family="gaussian process")], quantity="elapsed_s")
    assert len(selected.judged) == 30
    assert selected.judgement.expected.mape < 5


def test_many_runs_are_judged_by_a_sample_that_no_fit_saw() -> None:
    data = _build(small=0, large=4500)
    memoriser = Recipe(family="tree")
    selected = select(data, [memoriser], quantity="elapsed_s")
    assert len(selected.judged) == 1000
    seen = memoriser.fit(data).predict(data.X[selected.judged])
    assert np.mean(np.abs(seen / data.y[selected.judged] - 1)) < np.mean(
        np.abs(selected.held_out / data.y[selected.judged] - 1)
    )
