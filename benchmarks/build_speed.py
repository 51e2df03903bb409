"""The time of ``build`` compared with one plain fit of boosted trees."""

import statistics
import time
from collections.abc import Callable

import lightgbm
import numpy as np
import pandas as pd

import foretell
from foretell import Columns
from foretell.stores import open_store

ROWS, COLUMNS, TREES = 5_000, 15, 500
_ROUNDS = 3


def run() -> dict[str, float]:
    frame = make_table()
    X, y = frame.drop(columns="time_s"), np.log(frame["time_s"])
    with open_store("sqlite://") as store:
        foretell.import_runs(frame, app="many", columns=Columns(elapsed="time_s"), store=store)
        pairs = [
            (
                _seconds(lambda: lightgbm.LGBMRegressor(n_estimators=TREES, verbose=-1).fit(X, y)),
                _seconds(lambda: foretell.build("many", store=store)),
            )
            for _ in range(_ROUNDS)
        ]
    plain, build = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(build / plain for plain, build in pairs)
    return {"plain fit s": plain, "build s": build, "ratio": ratio, "goal ratio": 20.0}


def make_table() -> pd.DataFrame:
    """Runs of 15 parameters, of which six matter, half of them swept over a grid."""
    draw = np.random.default_rng(0)
    grid = 2.0 ** draw.integers(0, 7, (ROWS, COLUMNS // 2))
    sizes = np.exp(draw.uniform(0, 6, (ROWS, COLUMNS - COLUMNS // 2)))
    frame = pd.DataFrame(np.column_stack([grid, sizes]), columns=[f"p{index}" for index in range(COLUMNS)])
    work = 1 + 0.01 * frame["p7"] * frame["p8"] ** 0.5 / frame["p0"] + 0.3 * frame["p1"] + 2 * (frame["p9"] > 40)
    return frame.assign(time_s=(work * (1 + 0.1 * np.log(frame["p2"]))) * draw.lognormal(0, 0.05, ROWS))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
