"""What ranking costs beyond predicting: 100,000 (configuration, allocation) pairs against the bare models' predict on
the same rows, already encoded; goal: at most 3 times. Tried with the model `build` picks and with boosting.
"""

import dataclasses

import numpy as np

from benchmarks.histories import APP, make_runs
from benchmarks.timing import time_calls
from foretell.api.advice import rank_pairs
from foretell.api.places import find_site
from foretell.entities.run import RunSpec
from foretell.features.table import build_table
from foretell.models.recipes import Recipe, TrainingSet
from foretell.predictor.learn import learn
from foretell.predictor.predictor import Predictor

PAIRS = 100_000


def run() -> dict[str, float]:
    table = build_table(list(make_runs(2_000)))
    chosen = learn(APP, table)
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
    options = len(rank_pairs(predictor, _specs(1), site).options)
    specs = _specs(PAIRS // options)
    rows = options * len(specs)
    X = np.repeat(predictor.encoder.encode(predictor.tabulate(specs), len(specs)), options, axis=0)
    seconds = time_calls(
        {
            "bare": lambda: [model.predict(X) for model in predictor.models.values()],
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


def _specs(count: int) -> list[RunSpec]:
    return [dataclasses.replace(run.spec) for run in make_runs(count, seed=1)]
