"""How long computing a batch takes, alone and beside others: a law, and how far each batch lies from it."""

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

_SMALL = 1e-6


@dataclass(frozen=True, slots=True)
class Block:
    """Parameters of one meaning, one for each workload, cluster or pair of them, and what is believed beforehand."""

    level: str
    mean: float
    sd: float


Blocks = Mapping[str, Block]


def get_column(name: str, params: Params, rows: Rows, blocks: Blocks) -> Floats:
    """The number of each row."""
    return params[name][rows.levels[blocks[name].level]]


def soften(values: Floats) -> Floats:
    """So that squares of what is far off grow as its amount."""
    return np.asarray(np.sign(values) * np.sqrt(2 * (np.sqrt(1 + values**2) - 1)))


def _slope_softened(values: Floats) -> Floats:
    rooted = np.sqrt(1 + values**2)
    return np.asarray(np.sqrt((rooted + 1) / 2) / rooted)


def fit_blocks(
    blocks: Mapping[str, Block],
    sizes: Mapping[str, int],
    rows: Rows,
    miss: Callable[[Params], Floats],
    *,
    begin: Mapping[str, Floats] | None = None,
) -> Params:
    """The parameters that miss least, none far from what is believed of it; each has one more, for names never seen.

    ``miss`` has one column for each row. A row depends on one parameter of a block only, so that one step of a whole
    block tells the slopes of all its parameters. The search begins at what is believed, or at ``begin``.
    """
    starts = dict(
        zip(blocks, np.cumsum([0, *(sizes[block.level] for block in blocks.values())]).tolist(), strict=False)
    )
    means = np.concatenate([np.full(sizes[block.level], block.mean) for block in blocks.values()])
    doubts = np.concatenate([np.full(sizes[block.level], block.sd) for block in blocks.values()])

    def unpack(flat: Floats) -> dict[str, Floats]:
        parts = {name: flat[starts[name] : starts[name] + sizes[block.level]] for name, block in blocks.items()}
        return {name: np.append(part, _unseen(blocks[name], part)) for name, part in parts.items()}

    def weigh(flat: Floats) -> Floats:
        return np.concatenate([miss(unpack(flat)).ravel(), soften((flat - means) / doubts)])

    def slope(flat: Floats) -> Floats:
        now = miss(unpack(flat))
        kinds, count = now.shape
        slopes = np.zeros((now.size + len(flat), len(flat)))
        for name, block in blocks.items():
            moved = flat.copy()
            moved[starts[name] : starts[name] + sizes[block.level]] += _SMALL
            change = (miss(unpack(moved)) - now) / _SMALL
            for kind in range(kinds):
                slopes[kind * count + np.arange(count), starts[name] + rows.levels[block.level]] = change[kind]
        slopes[now.size + np.arange(len(flat)), np.arange(len(flat))] = (
            _slope_softened((flat - means) / doubts) / doubts
        )
        return slopes

    first = means.copy()
    for name, values in (begin or {}).items():
        first[starts[name] : starts[name] + sizes[blocks[name].level]] = values
    return unpack(least_squares(weigh, first, jac=slope, max_nfev=80).x)


def _unseen(block: Block, part: Floats) -> float:
    return float(part[0]) if block.level == "all" else block.mean


NOISE = 0.05  # of steps, in logs
_SHARPNESS = 4.0  # of the turn from a step bound by the host to one bound by the GPU
_FADES = (0.0, 0.5, 1.0, 2.0)  # powers of the batch by which waiting for the slowest may fade

# In logs, but powers.
_BLOCKS = {
    "host": Block("workload", np.log(0.05), 3.0),
    "host_cluster": Block("cluster", 0.0, 0.3),
    "host_pair": Block("pair", 0.0, 0.3),
    "sample": Block("workload", np.log(0.005), 5.0),
    "sample_cluster": Block("cluster", 0.0, 0.2),
    "sample_pair": Block("pair", 0.0, 0.2),
    "samples_before": Block("workload", 0.0, 2.0),  # a batch costs as if it were larger by these
    "flops_power": Block("all", 0.5, 0.3),  # half each: steps move as much as they compute
    "bandwidth_power": Block("all", 0.5, 0.3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """The log of seconds that a batch takes: a law, and how far each batch lies from it."""

    law: Params
    cells: Mapping[int, tuple[Floats, Floats]]  # by pair: log batches, logs beside the law
    shared: Mapping[int, tuple[Floats, Floats]]  # by workload: what clusters have in common of these
    wait: Floats  # by workload: for the slowest, at its least batch
    fade: Floats
    least: Floats  # log batch
    alone: Floats  # by pair, the last for others: by how much a GPU alone is slower
    alone_shared: Floats  # by workload

    @classmethod
    def learn(cls, rows: Rows, seconds: Floats, names: Names) -> "Compute":
        known = np.flatnonzero(np.isfinite(seconds))
        _require(rows.take(known), names)
        rows, logs = rows.take(known), np.log(seconds[known])
        sizes = names.sizes()
        wait, fade, least, alone_shared = (np.zeros(sizes["workload"]) for _ in range(4))
        alone = np.zeros(sizes["pair"] + 1)
        found: list[tuple[int, float, float]] = []  # pair, log batch, log seconds
        for number in range(sizes["workload"]):
            few = np.flatnonzero(rows.levels["workload"] == number)
            cells = _learn_cells(rows.take(few), logs[few])
            wait[number], fade[number], least[number] = cells.wait, cells.fade, cells.least
            alone_shared[number] = cells.alone_shared
            for pair, value in cells.alone.items():
                alone[pair] = value
            found += cells.found
        law, beside = _learn_compute_law(rows, found, names)
        return cls(
            law=law,
            cells=_group(found, beside),
            shared=_share(found, beside, {names.pair[pair]: names.workload[pair[0]] for pair in names.pair}),
            wait=wait,
            fade=fade,
            least=least,
            alone=alone,
            alone_shared=alone_shared,
        )

    def tell(self, rows: Rows) -> Floats:
        workload, pair = rows.levels["workload"], rows.levels["pair"]
        log_batch = np.log(rows.batch)
        told = _compute_law(self.law, rows)
        for number in np.unique(pair).tolist():
            few = np.flatnonzero(pair == number)
            if number in self.cells:
                told[few] += np.interp(log_batch[few], *self.cells[number])
        for number in np.unique(workload).tolist():
            few = np.flatnonzero((workload == number) & ~np.isin(pair, list(self.cells)))
            told[few] += np.interp(log_batch[few], *self.shared[number])
        waits = (
            self.wait[workload]
            * _slowest(rows.count)
            * np.exp(-self.fade[workload] * (log_batch - self.least[workload]))
        )
        alone = np.where(rows.count == 1, self.alone[pair] + self.alone_shared[workload], 0.0)
        return np.asarray(told + waits + alone)


def _require(rows: Rows, names: Names) -> None:
    missing = [name for name, number in names.workload.items() if number not in rows.levels["workload"]]
    if missing:
        raise ImportDataError(
            f"no row tells what {missing[0]!r} computes: expected steps of one GPU, or rows with the time of their"
            " synchronising. Measure it on one GPU"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    wait: float
    fade: float
    least: float
    alone_shared: float
    alone: Mapping[int, float]
    found: list[tuple[int, float, float]]


def _learn_cells(rows: Rows, logs: Floats) -> _Cells:
    """Each batch on each cluster by itself, and what all have in common: waiting for the slowest, and being alone."""
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
    doubt = np.concatenate([np.full(len(cells), 1e-3), np.ones(len(pairs)), [0.3, 3.0]])
    only = np.bincount(cell)[cell] == 1  # nothing else tells of its batch, however far off it is
    usual = float(np.median(logs))  # so that a second is no special time
    tried = []
    for fade in _FADES:
        design[:, -1] = _slowest(rows.count) * np.exp(-fade * (log_batch - log_batch.min()))
        found, missed = _solve(design, logs - usual, doubt, only)
        tried.append((missed, fade, found))
    _, fade, found = min(tried, key=lambda each: each[0])
    return _Cells(
        wait=float(found[-1]),
        fade=fade,
        least=float(log_batch.min()),
        alone_shared=float(found[-2]),
        alone={each: float(found[len(cells) + number]) for each, number in pairs.items()},
        found=[(key[0], key[1], float(found[number]) + usual) for key, number in cells.items()],
    )


def _solve(design: Floats, logs: Floats, doubt: Floats, only: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Ridge regression in which what lies far off counts less, but ``only`` rows; the last number is never below 0."""
    weight, used = np.ones(len(logs)), design.copy()
    for _ in range(6):
        weighted = used * weight[:, None]
        found = np.linalg.solve(weighted.T @ used + np.diag(doubt), weighted.T @ logs)
        if found[-1] < 0:
            used[:, -1] = 0.0
            continue
        strayed = np.abs(logs - used @ found)
        weight = np.where(only, 1.0, 1 / np.maximum(1.0, strayed / (2.2 * np.median(strayed) + 1e-3)))
    return np.asarray(found, dtype=float), float(np.sum(weight * (logs - used @ found) ** 2))


def _slowest(count: Floats) -> Floats:
    """How far the slowest of so many lies above their mean, in standard deviations."""
    return np.where(count > 1, ndtri((count - 0.375) / (count + 0.25)), 0.0)


def _learn_compute_law(rows: Rows, found: Sequence[tuple[int, float, float]], names: Names) -> tuple[Params, Floats]:
    """The law of all cells, and how far each lies from it."""
    first = {pair: number for number, pair in reversed(list(enumerate(rows.levels["pair"].tolist())))}
    cells = rows.take(np.array([first[pair] for pair, _, _ in found]))
    cells = replace(cells, batch=np.exp([batch for _, batch, _ in found]))
    logs = np.array([value for _, _, value in found])

    def miss(params: Params) -> Floats:
        return soften((logs - _compute_law(params, cells)) / NOISE)[None]

    law = fit_blocks(_BLOCKS, names.sizes(), cells, miss)
    return law, logs - _compute_law(law, cells)


def _compute_law(params: Params, rows: Rows) -> Floats:
    """The log of the longer of what the host and what the GPU needs, with a soft turn."""

    def get(name: str) -> Floats:
        return get_column(name, params, rows, _BLOCKS)

    host = get("host") + get("host_cluster") + get("host_pair")
    speed = get("flops_power") * rows.flops + get("bandwidth_power") * rows.bandwidth
    sample = get("sample") + get("sample_cluster") + get("sample_pair") - speed
    gpu = sample + np.log(rows.batch + np.exp(get("samples_before")))
    return np.asarray(np.logaddexp(_SHARPNESS * host, _SHARPNESS * gpu) / _SHARPNESS)


def _group(found: Sequence[tuple[int, float, float]], beside: Floats) -> dict[int, tuple[Floats, Floats]]:
    groups: dict[int, list[tuple[float, float]]] = {}
    for (pair, batch, _), value in zip(found, beside, strict=True):
        groups.setdefault(pair, []).append((batch, float(value)))
    return {pair: (np.array(sorted(each))[:, 0], np.array(sorted(each))[:, 1]) for pair, each in groups.items()}


def _share(
    found: Sequence[tuple[int, float, float]], beside: Floats, workloads: Mapping[int, int]
) -> dict[int, tuple[Floats, Floats]]:
    """What batches of a workload have in common on all clusters; one cluster's word is believed by half."""
    groups: dict[int, dict[float, list[float]]] = {}
    for (pair, batch, _), value in zip(found, beside, strict=True):
        groups.setdefault(workloads[pair], {}).setdefault(batch, []).append(float(value))
    return {
        workload: (
            np.array(sorted(batches)),
            np.array([sum(batches[batch]) / (len(batches[batch]) + 1) for batch in sorted(batches)]),
        )
        for workload, batches in groups.items()
    }
