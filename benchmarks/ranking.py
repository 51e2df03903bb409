"""What ranking costs beyond predicting: 100,000 (configuration, allocation) pairs against the bare models' predict on
the same rows, already encoded; goal: at most 3 times. Tried with the model `build` picks and with boosting.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from benchmarks.histories import APP, make_runs
from benchmarks.timing import time_calls
from foretell.advice.api import machine_of, rank_pairs
from foretell.advice.site_lookup import find_site
from foretell.core.run import RunSpec
from foretell.runtimes.fit import fit_predictor
from foretell.runtimes.predictor import DEVIATION, Predictor
from foretell.runtimes.recipes import FittedRecipe, Recipe, TrainingSet
from foretell.runtimes.regressors import GaussianProcessRunRegressor
from foretell.runtimes.run_table import build_table

PAIRS = 100_000


def run() -> dict[str, float]:
    table = build_table(list(make_runs(2_000)))
    chosen = fit_predictor(APP, table)
    data = TrainingSet(
        X=chosen.encoder.encode(table.columns, len(table)),
        y=table.elapsed_s,
        unit=np.ones(len(table)),
        full_scale=table.full_scale,
        censored=table.censored,
        group=table.group,
    )
    boosting = {
        quantity: Recipe(family="boosting").fit(dataclasses.replace(data, y=y))
        for quantity, y in (("elapsed_s", table.elapsed_s), ("peak_memory_bytes", table.peak_memory_bytes))
    }
    with_boosting = dataclasses.replace(chosen, models=boosting)
    return {"pairs": PAIRS, **_measure("chosen", chosen), **_measure("boosting", with_boosting), "goal ratio": 3.0}


def _measure(name: str, predictor: Predictor) -> dict[str, float]:
    site = find_site("osc")
    options = rank_pairs(predictor, _specs(1), site).options
    specs = _specs(PAIRS // len(options))
    rows = len(options) * len(specs)
    X = predictor.encode_pairs(specs, [(allocation, machine_of(node)) for node, allocation in options])
    seconds = time_calls(
        {
            "bare": lambda: [_ask(name, model, X) for name, model in predictor.models.items()],
            "ranked": lambda: rank_pairs(predictor, specs, site),
        },
        repeats=7,
    )
    return {
        f"{name}: rows ranked": rows,
        f"{name}: bare predict s": seconds["bare"],
        f"{name}: ranking s": seconds["ranked"],
        f"{name}: ratio": seconds["ranked"] / seconds["bare"],
    }


def _ask(name: str, fitted: FittedRecipe, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the model is there for: a value, or how far it may stray."""
    model = fitted.model
    if name.endswith(DEVIATION) and isinstance(model, GaussianProcessRunRegressor):
        return model.spread(X)
    return fitted.predict(X)


def _specs(count: int) -> list[RunSpec]:
    return [dataclasses.replace(run.spec) for run in make_runs(count, seed=1)]
