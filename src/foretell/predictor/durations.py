"""How long runs that are only planned may take, from the few that were made. Rough, quick, for planning only."""

import math
from collections.abc import Mapping, Sequence
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from foretell.entities.run import Run, RunSpec
from foretell.runtimes.encoding import fit_encoder
from foretell.runtimes.run_table import RunTable, build_columns, build_table

LEAST_FOR_LAW = 4  # configurations
_MOST_GROWTH = 50.0  # in logs: beyond that, longer means nothing


def preload() -> None:
    """Import what estimates need, so that it is not imported while runs are measured, or a Ctrl-C lost in it."""
    import_module("foretell.runtimes.regressors")


def estimate_durations(runs: Sequence[Run], specs: Sequence[RunSpec]) -> NDArray[np.float64] | None:
    """Seconds for each specification; ``None`` before anything was measured.

    From too few configurations for a law, it is rather too long than too short.
    """
    table = build_table(runs)
    if not len(table):
        return None
    if len(np.unique(table.group)) < LEAST_FOR_LAW:
        return _guess_by_size(table, {run.id: run.spec for run in runs}, specs)
    encoder = fit_encoder(table.columns)
    from foretell.runtimes.regressors import REGRESSORS  # a campaign's first runs need not wait for scikit-learn

    law = REGRESSORS["law"]().fit(encoder.encode(table.columns, len(table)), table.elapsed_s)
    return law.predict(encoder.encode(build_columns(specs), len(specs)))


def guess_size(spec: RunSpec) -> float:
    """A guess at what a run costs, before any was made: the product of its numbers, as a logarithm."""
    numbers = [value for value in spec.parameters.values() if isinstance(value, int | float)]
    return sum(math.log(number) for number in numbers if 0 < number < math.inf)


def _guess_by_size(table: RunTable, known: Mapping[str, RunSpec], specs: Sequence[RunSpec]) -> NDArray[np.float64]:
    """What the next larger measured size took; beyond the largest, in proportion to the size, or as it grew so far."""
    measured = np.array([guess_size(known[run_id]) for run_id in table.run_ids])
    sizes = np.unique(measured)
    seconds = np.array([np.median(table.elapsed_s[measured == size]) for size in sizes])
    seconds = np.maximum.accumulate(seconds)
    grown = math.log(seconds[-1] / seconds[0]) / (sizes[-1] - sizes[0]) if len(sizes) > 1 else 1.0
    wanted = np.array([guess_size(spec) for spec in specs])
    next_larger = np.minimum(np.searchsorted(sizes, wanted), len(sizes) - 1)
    beyond = np.maximum(wanted - sizes[-1], 0.0) * max(grown, 1.0)
    return np.asarray(seconds[next_larger] * np.exp(np.minimum(beyond, _MOST_GROWTH)))
