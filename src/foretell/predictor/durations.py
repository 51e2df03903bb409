"""How long runs that are only planned may take, from the few that were made. Rough, quick, for planning only."""

from collections.abc import Sequence
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from foretell.entities.run import Run, RunSpec
from foretell.features.encode import fit_encoder
from foretell.features.table import build_columns, build_table

_LEAST_FOR_LAW = 4


def preload() -> None:
    """Import what estimates need, so that it is not imported while runs are measured, or a Ctrl-C lost in it."""
    import_module("foretell.models.runs")


def estimate_durations(runs: Sequence[Run], specs: Sequence[RunSpec]) -> NDArray[np.float64] | None:
    """Seconds for each specification; ``None`` before anything was measured."""
    table = build_table(runs)
    if not len(table):
        return None
    encoder = fit_encoder(table.columns)
    if len(np.unique(table.group)) < _LEAST_FOR_LAW:
        return np.full(len(specs), float(np.median(table.elapsed_s)))
    from foretell.models.runs import REGRESSORS  # a campaign's first runs need not wait for scikit-learn

    law = REGRESSORS["law"]().fit(encoder.encode(table.columns, len(table)), table.elapsed_s)
    return law.predict(encoder.encode(build_columns(specs), len(specs)))
