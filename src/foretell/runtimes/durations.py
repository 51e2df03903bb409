"""Rough, quick estimates of how long planned runs take, from the few that were made."""

import math
from collections.abc import Mapping, Sequence
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from foretell.core.run import Run, RunSpec
from foretell.runtimes.encoding import fit_encoder
from foretell.runtimes.run_table import RunTable, build_columns, build_table

LEAST_FOR_LAW = 4  # configurations
_MAX_GROWTH = 50.0  # natural logarithm, so that the result stays finite


def preload() -> None:
    """Import what estimates need now, not while runs are measured, or where a Ctrl-C would be lost."""
    import_module("foretell.runtimes.regressors")


def estimate_durations(runs: Sequence[Run], specs: Sequence[RunSpec]) -> NDArray[np.float64] | None:
    """Return the expected seconds of each specification; ``None`` if no run was measured.

    With too few configurations to fit a scaling law, estimates are high rather than low.
    """
    table = build_table(runs)
    if not len(table):
        return None
    if len(np.unique(table.group)) < LEAST_FOR_LAW:
        return _guess_by_size(table, {run.id: run.spec for run in runs}, specs)
    encoder = fit_encoder(table.columns)
    from foretell.runtimes.regressors import REGRESSORS  # the first runs of a campaign do not wait for scikit-learn

    law = REGRESSORS["law"]().fit(encoder.encode(table.columns, len(table)), table.elapsed_s)
    return law.predict(encoder.encode(build_columns(specs), len(specs)))


def guess_size(spec: RunSpec) -> float:
    """Return a rough size of a run before any was made: the logarithm of the product of its numbers."""
    numbers = [value for value in spec.parameters.values() if isinstance(value, int | float)]
    return sum(math.log(number) for number in numbers if 0 < number < math.inf)


def _guess_by_size(table: RunTable, known: Mapping[str, RunSpec], specs: Sequence[RunSpec]) -> NDArray[np.float64]:
    """Return the time of the next larger measured size; beyond the largest, extrapolated at least proportionally."""
    measured = np.array([guess_size(known[run_id]) for run_id in table.run_ids])
    sizes = np.unique(measured)
    seconds = np.array([np.median(table.elapsed_s[measured == size]) for size in sizes])
    seconds = np.maximum.accumulate(seconds)
    growth = math.log(seconds[-1] / seconds[0]) / (sizes[-1] - sizes[0]) if len(sizes) > 1 else 1.0
    wanted = np.array([guess_size(spec) for spec in specs])
    next_larger = np.minimum(np.searchsorted(sizes, wanted), len(sizes) - 1)
    beyond = np.maximum(wanted - sizes[-1], 0.0) * max(growth, 1.0)
    return np.asarray(seconds[next_larger] * np.exp(np.minimum(beyond, _MAX_GROWTH)))
