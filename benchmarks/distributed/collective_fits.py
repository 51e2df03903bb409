"""Fits the law of collectives, curves of devices and spreads of errors to measured rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.distributed.collective_rows import CollectiveRow
from foretell.core.workload import Floats
from foretell.distributed.collective_curves import Curve, MeasuredCurves
from foretell.distributed.collective_laws import STARTS, CollectiveLaw, Exchanges
from foretell.distributed.collective_times import LARGE, CollectiveModel, CollectiveTimes, describe

_SOURCES = {"aiconfigurator": 0.0, "xla": 5e-6, "vidur": 3e-6, "aceso": 5e-6}  # seconds that a measurement adds
_SMALL_WEIGHT = 0.35  # of messages below LARGE, which hardly matter for training
_ROWS = 200  # of a device count in full
_OUTLIER = 0.15
_PRIOR = 0.5 / np.r_[np.full(len(STARTS), 0.7), np.ones(len(_SOURCES) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw:
    """A law, and the seconds that each source of measurements adds to it: launches and synchronisation of its tool."""

    law: CollectiveLaw
    added_s: Mapping[str, float]


def fit_law(rows: Sequence[CollectiveRow]) -> FittedLaw:
    """Fit to rows within nodes, in logarithms; no device outweighs the others."""
    rows = [row for row in rows if not row.crosses]
    exchanges = describe_rows(rows)
    measured = np.log([row.seconds for row in rows])
    places = np.array([list(_SOURCES).index(row.source) for row in rows])
    weights = _weigh(rows)
    start = np.r_[STARTS, np.log(list(_SOURCES.values())[1:])]

    def find_residuals(logs: Floats) -> Floats:
        added = np.r_[0.0, np.exp(logs[len(STARTS) :])]
        predicted = np.log(CollectiveLaw(logs[: len(STARTS)]).find_seconds(exchanges) + added[places])
        return np.asarray(np.r_[weights * (predicted - measured), _PRIOR * (logs - start)])

    found = least_squares(find_residuals, start, loss="soft_l1", f_scale=_OUTLIER, max_nfev=60).x
    added = np.r_[0.0, np.exp(found[len(STARTS) :])]
    return FittedLaw(law=CollectiveLaw(found[: len(STARTS)]), added_s=dict(zip(_SOURCES, added.tolist(), strict=True)))


def describe_rows(rows: Sequence[CollectiveRow]) -> Exchanges:
    """The rows as the law reads them."""
    parts = [describe(row.operation, row.group.gpus, np.array([row.bytes_]), row.topology) for row in rows]
    return Exchanges.join(parts)


def build_curves(rows: Sequence[CollectiveRow], fitted: FittedLaw) -> MeasuredCurves:
    """A curve for each source, device, operation and number of GPUs; of rows whose links are the device's own."""
    rows = [row for row in rows if not row.crosses and not row.topology.link_bytes]
    if not rows:
        return MeasuredCurves()
    added = np.array([fitted.added_s[row.source] for row in rows])
    shifts = np.log([row.seconds for row in rows]) - np.log(fitted.law.find_seconds(describe_rows(rows)) + added)
    groups: dict[tuple[str, str, str, int], list[tuple[float, float]]] = {}
    for row, shift in zip(rows, shifts, strict=True):
        key = (row.source, row.device, str(row.operation), row.group.gpus)
        groups.setdefault(key, []).append((float(np.log2(row.bytes_)), float(shift)))
    return MeasuredCurves(
        Curve(device=device, operation=operation, gpus=gpus, sizes=sizes, shifts=values)
        for (_, device, operation, gpus), pairs in groups.items()
        for sizes, values in [np.array(sorted(pairs)).T]
    )


def predict_rows(rows: Sequence[CollectiveRow], model: CollectiveModel, added_s: Mapping[str, float]) -> Floats:
    """Seconds of each row, as its source would measure them."""
    times = CollectiveTimes(model)
    return np.array(
        [
            times.predict(row.operation, row.bytes_, row.group, row.topology) + added_s.get(row.source, 0.0)
            for row in rows
        ]
    )


def find_spread(errors: Floats) -> float:
    """The standard deviation of a normal distribution with as many errors beyond its 90 % interval."""
    return float(np.quantile(np.abs(errors), 0.9) / 1.645)


def _weigh(rows: Sequence[CollectiveRow]) -> Floats:
    names, places, counts = np.unique([row.device for row in rows], return_inverse=True, return_counts=True)
    assert len(names) == len(counts)
    sizes: NDArray[np.bool_] = np.array([row.bytes_ for row in rows]) >= LARGE
    return np.asarray(np.where(sizes, 1.0, _SMALL_WEIGHT) / np.sqrt(counts[places] / _ROWS))
