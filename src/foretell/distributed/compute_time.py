"""The compute time of a batch on one or many GPUs: a parametric law, and the deviation of each measured batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtri

from foretell.core.errors import ImportDataError
from foretell.core.workload import Floats
from foretell.distributed.placed_steps import Names, Rows

Params = Mapping[str, Floats]

_STEP = 1e-6  # of finite differences


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """A parameter for each workload, cluster or pair of them, with a normal prior."""

    level: str
    mean: float
    sd: float


ParameterGroups = Mapping[str, ParameterGroup]


def get_column(name: str, params: Params, rows: Rows, groups: ParameterGroups) -> Floats:
    """The parameter of each row."""
    return params[name][rows.levels[groups[name].level]]


def soft_l1(values: Floats) -> Floats:
    """Residuals whose squares grow linearly far from 0, so that outliers count less."""
    return np.asarray(np.sign(values) * np.sqrt(2 * (np.sqrt(1 + values**2) - 1)))


def _slope_soft_l1(values: Floats) -> Floats:
    rooted = np.sqrt(1 + values**2)
    return np.asarray(np.sqrt((rooted + 1) / 2) / rooted)


def fit_parameters(
    groups: ParameterGroups,
    sizes: Mapping[str, int],
    rows: Rows,
    find_residuals: Callable[[Params], Floats],
    *,
    start: Mapping[str, Floats] | None = None,
) -> Params:
    """The parameters of least squares with priors; each group has one more, for names that were not measured.

    ``find_residuals`` gives one column for each row. A row depends on one parameter of a group only, so that one step
    of the whole group gives the slopes of all its parameters. The search starts at the priors, or at ``start``.
    """
    starts = dict(
        zip(groups, np.cumsum([0, *(sizes[group.level] for group in groups.values())]).tolist(), strict=False)
    )
    means = np.concatenate([np.full(sizes[group.level], group.mean) for group in groups.values()])
    deviations = np.concatenate([np.full(sizes[group.level], group.sd) for group in groups.values()])

    def unpack(flat: Floats) -> dict[str, Floats]:
        parts = {name: flat[starts[name] : starts[name] + sizes[group.level]] for name, group in groups.items()}
        return {name: np.append(part, _find_unmeasured(groups[name], part)) for name, part in parts.items()}

    def find_all_residuals(flat: Floats) -> Floats:
        return np.concatenate([find_residuals(unpack(flat)).ravel(), soft_l1((flat - means) / deviations)])

    def slope(flat: Floats) -> Floats:
        now = find_residuals(unpack(flat))
        kinds, count = now.shape
        slopes = np.zeros((now.size + len(flat), len(flat)))
        for name, group in groups.items():
            moved = flat.copy()
            moved[starts[name] : starts[name] + sizes[group.level]] += _STEP
            change = (find_residuals(unpack(moved)) - now) / _STEP
            for kind in range(kinds):
                slopes[kind * count + np.arange(count), starts[name] + rows.levels[group.level]] = change[kind]
        slopes[now.size + np.arange(len(flat)), np.arange(len(flat))] = (
            _slope_soft_l1((flat - means) / deviations) / deviations
        )
        return slopes

    first = means.copy()
    for name, values in (start or {}).items():
        first[starts[name] : starts[name] + sizes[groups[name].level]] = values
    return unpack(least_squares(find_all_residuals, first, jac=slope, max_nfev=80).x)


def _find_unmeasured(group: ParameterGroup, part: Floats) -> float:
    return float(part[0]) if group.level == "all" else group.mean


NOISE = 0.05  # of measured steps, as a logarithm
_SHARPNESS = 4.0  # of the transition from a step bound by the host to one bound by the GPU
_DECAYS = (0.0, 0.5, 1.0, 2.0)  # powers of the batch with which waiting for the slowest GPU may decrease

# Logarithms, but powers.
_PARAMETERS = {
    "host": ParameterGroup("workload", np.log(0.05), 3.0),
    "host_cluster": ParameterGroup("cluster", 0.0, 0.3),
    "host_pair": ParameterGroup("pair", 0.0, 0.3),
    "sample": ParameterGroup("workload", np.log(0.005), 5.0),
    "sample_cluster": ParameterGroup("cluster", 0.0, 0.2),
    "sample_pair": ParameterGroup("pair", 0.0, 0.2),
    "samples_before": ParameterGroup("workload", 0.0, 2.0),  # examples that a batch costs in addition
    "flops_power": ParameterGroup("all", 0.5, 0.3),  # half each: steps are bound by memory as much as by operations
    "bandwidth_power": ParameterGroup("all", 0.5, 0.3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTimeModel:
    """The log of the compute time of a batch: a law, and the deviation of each measured batch from it."""

    law: Params
    cells: Mapping[int, tuple[Floats, Floats]]  # by pair: log batches, deviations
    shared: Mapping[int, tuple[Floats, Floats]]  # by workload: the mean of these over clusters
    wait: Floats  # by workload: for the slowest GPU, at the smallest batch
    decay: Floats
    least: Floats  # log of the smallest batch
    alone: Floats  # by pair, the last for others: by how much one GPU without others is slower
    alone_shared: Floats  # by workload

    @classmethod
    def fit(cls, rows: Rows, seconds: Floats, names: Names) -> "ComputeTimeModel":
        known = np.flatnonzero(np.isfinite(seconds))
        _require(rows.take(known), names)
        rows, logs = rows.take(known), np.log(seconds[known])
        sizes = names.sizes()
        wait, decay, least, alone_shared = (np.zeros(sizes["workload"]) for _ in range(4))
        alone = np.zeros(sizes["pair"] + 1)
        found: list[tuple[int, float, float]] = []  # pair, log batch, log seconds
        for number in range(sizes["workload"]):
            few = np.flatnonzero(rows.levels["workload"] == number)
            cells = _fit_cells(rows.take(few), logs[few])
            wait[number], decay[number], least[number] = cells.wait, cells.decay, cells.least
            alone_shared[number] = cells.alone_shared
            for pair, value in cells.alone.items():
                alone[pair] = value
            found += cells.found
        law, deviations = _fit_compute_law(rows, found, names)
        return cls(
            law=law,
            cells=_group(found, deviations),
            shared=_average(found, deviations, {names.pair[pair]: names.workload[pair[0]] for pair in names.pair}),
            wait=wait,
            decay=decay,
            least=least,
            alone=alone,
            alone_shared=alone_shared,
        )

    def predict(self, rows: Rows) -> Floats:
        """The log of seconds of each row."""
        workload, pair = rows.levels["workload"], rows.levels["pair"]
        log_batch = np.log(rows.batch)
        logs = _compute_law(self.law, rows)
        for number in np.unique(pair).tolist():
            few = np.flatnonzero(pair == number)
            if number in self.cells:
                logs[few] += np.interp(log_batch[few], *self.cells[number])
        for number in np.unique(workload).tolist():
            few = np.flatnonzero((workload == number) & ~np.isin(pair, list(self.cells)))
            logs[few] += np.interp(log_batch[few], *self.shared[number])
        waits = (
            self.wait[workload]
            * _slowest(rows.count)
            * np.exp(-self.decay[workload] * (log_batch - self.least[workload]))
        )
        alone = np.where(rows.count == 1, self.alone[pair] + self.alone_shared[workload], 0.0)
        return np.asarray(logs + waits + alone)

    def find_gpu_share(self, rows: Rows) -> Floats:
        """The share of compute time that the GPU needs for the batch; the host limits the rest."""
        return np.minimum(np.exp(_find_logs(self.law, rows)[1] - _compute_law(self.law, rows)), 1.0)


def _require(rows: Rows, names: Names) -> None:
    missing = [name for name, number in names.workload.items() if number not in rows.levels["workload"]]
    if missing:
        raise ImportDataError(
            f"the compute time of {missing[0]!r} is unknown: expected steps of one GPU, or rows with sync_s. "
            "Measure it on one GPU"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    wait: float
    decay: float
    least: float
    alone_shared: float
    alone: Mapping[int, float]
    found: list[tuple[int, float, float]]


def _fit_cells(rows: Rows, logs: Floats) -> _Cells:
    """The time of each batch on each cluster, and the common effects of waiting for the slowest GPU and of one GPU."""
    log_batch = np.log(rows.batch)
    keys = list(zip(rows.levels["pair"].tolist(), log_batch.tolist(), strict=True))
    cells = {key: number for number, key in enumerate(sorted(set(keys)))}
    pairs = {pair: number for number, pair in enumerate(np.unique(rows.levels["pair"]).tolist())}
    cell, pair = np.array([cells[key] for key in keys]), np.array([pairs[key[0]] for key in keys])
    alone = (rows.count == 1).astype(float)
    design = np.zeros((len(logs), len(cells) + len(pairs) + 2))
    design[np.arange(len(logs)), cell] = 1.0
    design[np.arange(len(logs)), len(cells) + pair] = alone
    design[:, -2] = alone
    penalty = np.concatenate([np.full(len(cells), 1e-3), np.ones(len(pairs)), [0.3, 3.0]])
    only = np.bincount(cell)[cell] == 1  # the only row of its batch is no outlier
    centre = float(np.median(logs))  # so that the penalty does not pull towards one second
    tried = []
    for decay in _DECAYS:
        design[:, -1] = _slowest(rows.count) * np.exp(-decay * (log_batch - log_batch.min()))
        found, error = _solve(design, logs - centre, penalty, only)
        tried.append((error, decay, found))
    _, decay, found = min(tried, key=lambda each: each[0])
    return _Cells(
        wait=float(found[-1]),
        decay=decay,
        least=float(log_batch.min()),
        alone_shared=float(found[-2]),
        alone={each: float(found[len(cells) + number]) for each, number in pairs.items()},
        found=[(key[0], key[1], float(found[number]) + centre) for key, number in cells.items()],
    )


def _solve(design: Floats, logs: Floats, penalty: Floats, only: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Ridge regression in which outliers count less, except ``only`` rows; the last coefficient is 0 or more."""
    weight, used = np.ones(len(logs)), design.copy()
    for _ in range(6):
        weighted = used * weight[:, None]
        found = np.linalg.solve(weighted.T @ used + np.diag(penalty), weighted.T @ logs)
        if found[-1] < 0:
            used[:, -1] = 0.0
            continue
        errors = np.abs(logs - used @ found)
        weight = np.where(only, 1.0, 1 / np.maximum(1.0, errors / (2.2 * np.median(errors) + 1e-3)))
    return np.asarray(found, dtype=float), float(np.sum(weight * (logs - used @ found) ** 2))


def _slowest(count: Floats) -> Floats:
    """How far the slowest of so many is above their mean, in standard deviations."""
    return np.where(count > 1, ndtri((count - 0.375) / (count + 0.25)), 0.0)


def _fit_compute_law(rows: Rows, found: Sequence[tuple[int, float, float]], names: Names) -> tuple[Params, Floats]:
    """The law of all cells, and the deviation of each from it."""
    first = {pair: number for number, pair in reversed(list(enumerate(rows.levels["pair"].tolist())))}
    cells = rows.take(np.array([first[pair] for pair, _, _ in found]))
    cells = replace(cells, batch=np.exp([batch for _, batch, _ in found]))
    logs = np.array([value for _, _, value in found])

    def find_residuals(params: Params) -> Floats:
        return soft_l1((logs - _compute_law(params, cells)) / NOISE)[None]

    law = fit_parameters(_PARAMETERS, names.sizes(), cells, find_residuals)
    return law, logs - _compute_law(law, cells)


def _compute_law(params: Params, rows: Rows) -> Floats:
    """The log of the time of the host or of the GPU, whichever is longer, with a smooth transition."""
    host, gpu = _find_logs(params, rows)
    return np.asarray(np.logaddexp(_SHARPNESS * host, _SHARPNESS * gpu) / _SHARPNESS)


def _find_logs(params: Params, rows: Rows) -> tuple[Floats, Floats]:
    """The logs of the times of the host and of the GPU."""

    def get(name: str) -> Floats:
        return get_column(name, params, rows, _PARAMETERS)

    host = get("host") + get("host_cluster") + get("host_pair")
    speed = get("flops_power") * rows.flops + get("bandwidth_power") * rows.bandwidth
    sample = get("sample") + get("sample_cluster") + get("sample_pair") - speed
    return host, sample + np.log(rows.batch + np.exp(get("samples_before")))


def _group(found: Sequence[tuple[int, float, float]], deviations: Floats) -> dict[int, tuple[Floats, Floats]]:
    groups: dict[int, list[tuple[float, float]]] = {}
    for (pair, batch, _), value in zip(found, deviations, strict=True):
        groups.setdefault(pair, []).append((batch, float(value)))
    return {pair: (np.array(sorted(each))[:, 0], np.array(sorted(each))[:, 1]) for pair, each in groups.items()}


def _average(
    found: Sequence[tuple[int, float, float]], deviations: Floats, workloads: Mapping[int, int]
) -> dict[int, tuple[Floats, Floats]]:
    """The mean deviation of each batch over clusters, shrunk towards 0: by half for one cluster."""
    groups: dict[int, dict[float, list[float]]] = {}
    for (pair, batch, _), value in zip(found, deviations, strict=True):
        groups.setdefault(workloads[pair], {}).setdefault(batch, []).append(float(value))
    return {
        workload: (
            np.array(sorted(batches)),
            np.array([sum(batches[batch]) / (len(batches[batch]) + 1) for batch in sorted(batches)]),
        )
        for workload, batches in groups.items()
    }
