"""How long a step of data-parallel training takes where a batch, a placement and a cluster are named.

A step computes a batch on each GPU and synchronises the gradients of all. Computing is bound by the host or by the GPU,
which a few figures of the GPU carry to others. Synchronising is in proportion to the gradients' bytes and grows with
the GPUs of a node and with nodes; a part of it hides behind computing. All numbers are learned together, those of one
workload or cluster leaning on what the others say, so that a cluster never seen has an answer, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import expit, logit, ndtri

from foretell.entities.device import Device
from foretell.entities.workload import Floats
from foretell.errors import ImportDataError, NotFoundError
from foretell.models.intervals import Spread

Ints = NDArray[np.int64]
Params = Mapping[str, Floats]

GROWTHS = ("ring", "power", "limited")  # how synchronisation grows with GPUs and nodes
CHANCE = 0.05  # that a step is above, or below, its bounds
_NOISE = 0.05  # of steps, in logs
_SYNC_NOISE = (0.1, 0.05)  # of what is seen of synchronising: of itself, of computing
_LEAST_S = 1e-9
_USUAL_LINK = 4e9  # bytes a second, between 10 and 100 Gb/s: what nodes have whose link nobody named
_SHARPNESS = 4.0  # of the turn from a step bound by the host to one bound by the GPU
_MOST_ROWS = 3000  # learned from at once
_MOST_RESTS = 300  # of a workload on a cluster
_MOST_REST = 2.0  # in logs
_FADES = (0.0, 0.5, 1.0, 2.0)  # powers of the batch by which waiting for the slowest may fade


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """A step that is asked for: ``gpus`` on each node, each with ``batch`` samples."""

    workload: str
    cluster: str
    batch: float
    gpus: tuple[int, ...]
    device: Device | None = None  # nobody named one
    link_bytes_per_s: float | None = None  # between nodes; nobody named one


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A step that was measured; ``sync_s`` is the part of it in which computing waits for gradients."""

    placed: PlacedStep
    step_s: float
    sync_s: float | None = None  # nobody measured it


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelTime:
    """What is told of a step: its time with bounds, and the parts that compute and that wait for gradients."""

    step_s: float
    compute_s: float
    exposed_s: float
    low_s: float | None = None  # bounds are not learned yet
    high_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    """Parameters of one meaning, one for each workload, cluster or pair of them, and what is believed beforehand."""

    level: str
    mean: float
    sd: float


# In logs, but powers and shares, which are logits where they are limited to one.
_SYNC_BLOCKS = {
    "bytes": _Block("workload", 0.0, 1.5),
    "local": _Block("all", np.log(0.05), 1.5),  # one node
    "local_cluster": _Block("cluster", 0.0, 1.5),
    "local_pair": _Block("pair", 0.0, 0.25),
    "net": _Block("all", np.log(0.05), 1.5),  # several nodes
    "net_cluster": _Block("cluster", 0.0, 1.5),
    "net_pair": _Block("pair", 0.0, 0.25),
    "link_power": _Block("all", 0.5, 0.5),  # faster links are used less well
    "overlap": _Block("workload", 0.0, 1.0),  # share of computing behind which gradients are sent
    "overlap_pair": _Block("pair", 0.0, 0.7),
    "sharpness": _Block("all", 0.7, 0.5),  # of the turn from hidden to exposed
    "busy": _Block("pair", 3.0, 1.5),  # share of computing that the GPU is busy; the host takes the rest
}
_GROWTH_BLOCKS = {
    "ring": {"hop": _Block("all", np.log(1e-4), 2.0), "hop_cluster": _Block("cluster", 0.0, 1.5)},
    "power": {
        "local_power": _Block("all", 0.5, 0.3),
        "local_power_cluster": _Block("cluster", 0.0, 0.3),
        "nodes_power": _Block("all", 0.15, 0.3),
        "nodes_power_cluster": _Block("cluster", 0.0, 0.3),
        "shared_power": _Block("all", 0.5, 0.3),
        "shared_power_cluster": _Block("cluster", 0.0, 0.3),
    },
    "limited": {
        "local_power": _Block("all", 0.0, 1.0),
        "local_power_cluster": _Block("cluster", 0.0, 1.0),
        "nodes_power": _Block("all", float(logit(0.15)), 1.0),
        "nodes_power_cluster": _Block("cluster", 0.0, 1.0),
        "shared_power": _Block("all", 0.0, 1.0),
        "shared_power_cluster": _Block("cluster", 0.0, 1.0),
    },
}
_COMPUTE_BLOCKS = {
    "host": _Block("workload", np.log(0.05), 3.0),
    "host_cluster": _Block("cluster", 0.0, 0.3),
    "host_pair": _Block("pair", 0.0, 0.3),
    "sample": _Block("workload", np.log(0.005), 5.0),
    "sample_cluster": _Block("cluster", 0.0, 0.2),
    "sample_pair": _Block("pair", 0.0, 0.2),
    "samples_before": _Block("workload", 0.0, 2.0),  # a batch costs as if it were larger by these
    "flops_power": _Block("all", 0.5, 0.3),  # half each: steps move as much as they compute
    "bandwidth_power": _Block("all", 0.5, 0.3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Steps as columns. Levels are numbers of names; -1 is a name never seen."""

    levels: Mapping[str, Ints]
    batch: Floats
    count: Floats
    nodes: Floats
    most: Floats  # GPUs of the fullest node
    flops: Floats  # logs, of the mean of devices
    bandwidth: Floats
    link: Floats

    def take(self, chosen: Ints) -> "_Rows":
        levels = {name: values[chosen] for name, values in self.levels.items()}
        rest = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return _Rows(levels=levels, **rest)


_COLUMNS = ("batch", "count", "nodes", "most", "flops", "bandwidth", "link")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What was seen: workloads, clusters and pairs of them; and what figures are compared with."""

    workload: Mapping[str, int]
    cluster: Mapping[str, int]
    pair: Mapping[tuple[str, str], int]
    scale: Mapping[str, float | None]

    @classmethod
    def find(cls, steps: Sequence[PlacedStep]) -> "_Names":
        names = [
            _number({step.workload for step in steps}),
            _number({step.cluster for step in steps}),
        ]
        pairs = sorted({(step.workload, step.cluster) for step in steps})
        clusters = {step.cluster: step for step in steps}.values()
        figures = {name: [each[name] for each in map(_figures, clusters)] for name in ("flops", "bandwidth")}
        scale = {name: _mean_log(values) for name, values in figures.items()} | {"link": float(np.log(_USUAL_LINK))}
        return cls(
            workload=names[0], cluster=names[1], pair={pair: number for number, pair in enumerate(pairs)}, scale=scale
        )

    def sizes(self) -> dict[str, int]:
        return {
            "all": 1,
            "workload": len(self.workload),
            "cluster": len(self.cluster),
            "pair": len(self.pair),
        }

    def number(self, steps: Sequence[PlacedStep]) -> _Rows:
        """The steps as columns.

        Raises:
            NotFoundError: if a workload was never seen.
        """
        for step in steps:
            if step.workload not in self.workload:
                raise NotFoundError("workload", step.workload, known=self.workload, hint="Measure steps of it first.")
        levels = {
            "all": np.zeros(len(steps), dtype=np.int64),
            "workload": np.array([self.workload[step.workload] for step in steps], dtype=np.int64),
            "cluster": np.array([self.cluster.get(step.cluster, -1) for step in steps], dtype=np.int64),
            "pair": np.array([self.pair.get((step.workload, step.cluster), -1) for step in steps], dtype=np.int64),
        }
        figures = {
            name: np.array([_compare(_figures(step)[name], self.scale[name]) for step in steps])
            for name in ("flops", "bandwidth", "link")
        }
        return _Rows(
            levels=levels,
            batch=np.array([step.batch for step in steps], dtype=float),
            count=np.array([sum(step.gpus) for step in steps], dtype=float),
            nodes=np.array([len(step.gpus) for step in steps], dtype=float),
            most=np.array([max(step.gpus) for step in steps], dtype=float),
            **figures,
        )


def _number(names: set[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


def _figures(step: PlacedStep) -> dict[str, float | None]:
    device = step.device
    return {
        "flops": device.peak_flops if device else None,
        "bandwidth": device.bandwidth_bytes if device else None,
        "link": step.link_bytes_per_s,
    }


def _mean_log(values: Sequence[float | None]) -> float | None:
    """One figure alone has nothing to be compared with."""
    known = [np.log(value) for value in values if value is not None]
    return float(np.mean(known)) if len(known) > 1 else None


def _compare(value: float | None, scale: float | None) -> float:
    """A figure that nobody named counts as the mean of those named."""
    return 0.0 if value is None or scale is None else float(np.log(value) - scale)


class ParallelModel:
    """Learns from a table of steps, tells those of other batches, placements and clusters.

    **Growth.** ``ring``: bytes that a ring sends, and a latency for each hop. ``power``: powers of the GPUs of a node
    and of nodes. ``limited``: the same with powers from 0 to 1.
    **Bounds.** Only :meth:`learn_bounds` gives answers bounds: from steps of more GPUs, and of clusters, left out.
    """

    def __init__(self, growth: str = "ring", *, rest: bool = True) -> None:
        self.growth = growth
        self.rest = rest

    def fit(self, rows: Sequence[TimedStep]) -> Self:
        """Learn; returns itself.

        Raises:
            ImportDataError: if the rows cannot be learned from.
        """
        _check(rows)
        self.names_ = _Names.find([row.placed for row in rows])
        self.most_gpus_ = max(sum(row.placed.gpus) for row in rows)
        self.spreads_: dict[str, Spread] = {}
        every = self.names_.number([row.placed for row in rows])
        step_s = np.array([row.step_s for row in rows])
        sync_s = np.array([np.nan if row.sync_s is None else row.sync_s for row in rows])
        self.compute_ = _Compute.learn(every, _find_computing(every, step_s, sync_s), self.names_)
        chosen = _choose(len(rows))
        few = every.take(chosen)
        self.sync_ = self._learn_sync(few, step_s[chosen], sync_s[chosen])
        self.rests_ = self._learn_rests(few, step_s[chosen]) if self.rest else {}
        return self

    def predict(self, steps: Sequence[PlacedStep]) -> list[ParallelTime]:
        """The time of each step, in order.

        Raises:
            NotFoundError: if a workload was never seen.
        """
        if not steps:
            return []
        rows = self.names_.number(steps)
        step_s, exposed = self._tell(rows)
        told = step_s * np.exp(_tell_rests(self.rests_, rows))
        exposed = np.minimum(exposed, told)
        answers = [
            ParallelTime(step_s=float(time), compute_s=float(time - wait), exposed_s=float(wait))
            for time, wait in zip(told, exposed, strict=True)
        ]
        return [self._bound(answer, step) for answer, step in zip(answers, steps, strict=True)]

    def learn_bounds(self, rows: Sequence[TimedStep]) -> Self:
        """Learn how far answers stray: for more GPUs than were seen, and for clusters never seen; returns itself."""
        for kind, folds in (("more", split_by_gpus(rows)), ("new", split_by_cluster(rows))):
            told: list[tuple[float, float, float]] = []
            for train, test in folds:
                model = ParallelModel(self.growth, rest=self.rest).fit(train)
                asked = [row.placed for row in test]
                widths = [model._width(step) for step in asked]
                found = [answer.step_s for answer in model.predict(asked)]
                told += zip((row.step_s for row in test), found, widths, strict=True)
            if told:
                actual, predicted, width = np.array(told).T
                self.spreads_[kind] = Spread.learn(actual, predicted, width)
        return self

    def _bound(self, answer: ParallelTime, step: PlacedStep) -> ParallelTime:
        spread = self.spreads_.get("more" if (step.workload, step.cluster) in self.names_.pair else "new")
        if spread is None:
            return answer
        width = self._width(step)
        return replace(
            answer,
            low_s=answer.step_s * float(np.exp(min(0.0, spread.lower(CHANCE) * width))),
            high_s=answer.step_s * float(np.exp(max(0.0, spread.upper(CHANCE) * width))),
        )

    def _width(self, step: PlacedStep) -> float:
        """Powers that are wrong stray in proportion to the doublings beyond what was seen."""
        return 1.0 + max(0.0, float(np.log2(sum(step.gpus) / self.most_gpus_)))

    def _learn_sync(self, rows: _Rows, step_s: Floats, sync_s: Floats) -> Params:
        several = np.flatnonzero(rows.count > 1)
        rows, step_s, sync_s = rows.take(several), step_s[several], sync_s[several]
        compute = np.exp(self.compute_.tell(rows))
        seen = np.isfinite(sync_s)
        noise = _SYNC_NOISE[0] * np.where(seen, sync_s, 0.0) + _SYNC_NOISE[1] * compute

        def miss(params: Params) -> Floats:
            told, exposed = _law(params, rows, compute, self.growth)
            waits = np.where(seen, sync_s - exposed, 0.0) / noise
            return np.stack([_soften(np.log(step_s / told) / _NOISE), _soften(waits)])

        return _fit_blocks(_SYNC_BLOCKS | _GROWTH_BLOCKS[self.growth], self.names_.sizes(), rows, miss)

    def _tell(self, rows: _Rows) -> tuple[Floats, Floats]:
        return _law(self.sync_, rows, np.exp(self.compute_.tell(rows)), self.growth)

    def _learn_rests(self, rows: _Rows, step_s: Floats) -> "dict[int, _Rest]":
        strayed = np.clip(np.log(step_s / self._tell(rows)[0]), -_MOST_REST, _MOST_REST)
        pairs = rows.levels["pair"]
        chosen = {pair: np.flatnonzero(pairs == pair) for pair in np.unique(pairs).tolist()}
        return {pair: _Rest.learn(rows.take(few), strayed[few]) for pair, few in chosen.items()}


def _check(rows: Sequence[TimedStep]) -> None:
    if not rows:
        raise ImportDataError("no steps to learn from; expected rows with a batch, a placement and a time")
    for row in rows:
        placed = row.placed
        if not row.step_s > 0 or not placed.batch > 0 or not placed.gpus or min(placed.gpus) < 1:
            raise ImportDataError(
                f"{placed.workload!r} on {placed.cluster!r}: a step of {row.step_s} s with batch {placed.batch} on"
                f" {placed.gpus} GPUs; expected numbers above 0. Leave such rows out"
            )


def _choose(count: int) -> Ints:
    """Rows to learn from at once: all, or as many as are enough, drawn the same each time."""
    if count <= _MOST_ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, _MOST_ROWS, replace=False))


def _find_computing(rows: _Rows, step_s: Floats, sync_s: Floats) -> Floats:
    """Seconds that a step computes, where that is known: alone, or where its waiting was measured."""
    waits = np.where(rows.count == 1, np.nan_to_num(sync_s), sync_s)
    return np.where(step_s > waits, step_s - waits, np.nan)


def _law(params: Params, rows: _Rows, compute: Floats, growth: str) -> tuple[Floats, Floats]:
    """Seconds of each step, and of its synchronising that no computing hides."""

    def get(name: str) -> Floats:
        return _get(params, name, rows)

    sent = np.where(rows.count > 1, np.exp(np.minimum(_find_sent(get, rows, growth), 8.0)), 0.0) + _LEAST_S
    if growth == "ring":
        sent += np.exp(get("hop") + get("hop_cluster")) * (rows.count - 1)
    busy = compute * expit(get("busy"))
    behind = busy * expit(get("overlap") + get("overlap_pair"))
    sharpness = 1 + np.exp(get("sharpness"))
    both = np.maximum(behind, sent) * (1 + (np.minimum(behind, sent) / np.maximum(behind, sent)) ** sharpness) ** (
        1 / sharpness
    )
    exposed = both - behind
    # While the host holds the GPU up, waiting for gradients costs nothing.
    return np.maximum(compute, busy + exposed), exposed


def _find_sent(get: Callable[[str], Floats], rows: _Rows, growth: str) -> Floats:
    """The log of seconds that gradients take to be sent, were nothing else going on."""
    alone = rows.nodes == 1
    within = get("bytes") + get("local") + get("local_cluster") + get("local_pair")
    across = get("bytes") + get("net") + get("net_cluster") + get("net_pair") - get("link_power") * rows.link
    if growth == "ring":
        return np.where(alone, within, across) + np.log(2 * np.maximum(rows.count - 1, 0.5) / rows.count)
    limit = expit if growth == "limited" else np.asarray
    local, nodes, shared = (
        limit(get(f"{name}_power") + get(f"{name}_power_cluster")) for name in ("local", "nodes", "shared")
    )
    within = within + local * np.log(np.maximum(rows.most, 2) / 2)
    across = across + nodes * np.log(np.maximum(rows.nodes, 2) / 2) + shared * np.log(rows.most)
    return np.where(alone, within, across)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compute:
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
    def learn(cls, rows: _Rows, seconds: Floats, names: _Names) -> "_Compute":
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

    def tell(self, rows: _Rows) -> Floats:
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


def _require(rows: _Rows, names: _Names) -> None:
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


def _learn_cells(rows: _Rows, logs: Floats) -> _Cells:
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
    tried = []
    for fade in _FADES:
        design[:, -1] = _slowest(rows.count) * np.exp(-fade * (log_batch - log_batch.min()))
        found, missed = _solve(design, logs, doubt)
        tried.append((missed, fade, found))
    _, fade, found = min(tried, key=lambda each: each[0])
    return _Cells(
        wait=float(found[-1]),
        fade=fade,
        least=float(log_batch.min()),
        alone_shared=float(found[-2]),
        alone={each: float(found[len(cells) + number]) for each, number in pairs.items()},
        found=[(key[0], key[1], float(found[number])) for key, number in cells.items()],
    )


def _solve(design: Floats, logs: Floats, doubt: Floats) -> tuple[Floats, float]:
    """Ridge regression in which what lies far off counts less; the last number is never below 0."""
    weight, used = np.ones(len(logs)), design.copy()
    for _ in range(6):
        weighted = used * weight[:, None]
        found = np.linalg.solve(weighted.T @ used + np.diag(doubt), weighted.T @ logs)
        if found[-1] < 0:
            used[:, -1] = 0.0
            continue
        strayed = np.abs(logs - used @ found)
        weight = 1 / np.maximum(1.0, strayed / (2.2 * np.median(strayed) + 1e-3))
    return np.asarray(found, dtype=float), float(np.sum(weight * (logs - used @ found) ** 2))


def _slowest(count: Floats) -> Floats:
    """How far the slowest of so many lies above their mean, in standard deviations."""
    return np.where(count > 1, ndtri((count - 0.375) / (count + 0.25)), 0.0)


def _learn_compute_law(rows: _Rows, found: Sequence[tuple[int, float, float]], names: _Names) -> tuple[Params, Floats]:
    """The law of all cells, and how far each lies from it."""
    first = {pair: number for number, pair in reversed(list(enumerate(rows.levels["pair"].tolist())))}
    cells = rows.take(np.array([first[pair] for pair, _, _ in found]))
    cells = replace(cells, batch=np.exp([batch for _, batch, _ in found]))
    logs = np.array([value for _, _, value in found])

    def miss(params: Params) -> Floats:
        return _soften((logs - _compute_law(params, cells)) / _NOISE)[None]

    law = _fit_blocks(_COMPUTE_BLOCKS, names.sizes(), cells, miss)
    return law, logs - _compute_law(law, cells)


def _compute_law(params: Params, rows: _Rows) -> Floats:
    """The log of the longer of what the host and what the GPU needs, with a soft turn."""

    def get(name: str) -> Floats:
        return _get(params, name, rows)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """What the law leaves of a workload on a cluster: a Gaussian process, nothing far from what was seen."""

    points: Floats
    weights: Floats

    @classmethod
    def learn(cls, rows: _Rows, strayed: Floats) -> "_Rest":
        chosen = np.unique(np.linspace(0, len(strayed) - 1, min(len(strayed), _MOST_RESTS)).astype(np.int64))
        points, strayed = _locate(rows.take(chosen)), strayed[chosen]
        variance = max(float(np.var(strayed)), 1e-8)
        covariance = variance * _near(points, points) + _NOISE**2 * np.eye(len(points))
        return cls(points=points, weights=np.asarray(variance * np.linalg.solve(covariance, strayed), dtype=float))

    def tell(self, rows: _Rows) -> Floats:
        return np.asarray(_near(_locate(rows), self.points) @ self.weights)


def _tell_rests(rests: Mapping[int, _Rest], rows: _Rows) -> Floats:
    told, pairs = np.zeros(len(rows.batch)), rows.levels["pair"]
    for pair in np.unique(pairs).tolist():
        if pair in rests:
            few = np.flatnonzero(pairs == pair)
            told[few] = rests[pair].tell(rows.take(few))
    return told


def _locate(rows: _Rows) -> Floats:
    """Doublings of what a placement is made of."""
    return np.log2(np.column_stack([rows.batch, rows.count, rows.nodes, rows.most]))


def _near(some: Floats, others: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * ((some[:, None] - others[None]) ** 2).sum(axis=2)))


def _get(params: Params, name: str, rows: _Rows) -> Floats:
    return params[name][rows.levels[_ALL_BLOCKS[name].level]]


_ALL_BLOCKS: dict[str, _Block] = (
    _SYNC_BLOCKS | _COMPUTE_BLOCKS | _GROWTH_BLOCKS["ring"] | _GROWTH_BLOCKS["power"] | _GROWTH_BLOCKS["limited"]
)


def _soften(values: Floats) -> Floats:
    """So that squares of what is far off grow as its amount."""
    return np.asarray(np.sign(values) * np.sqrt(2 * (np.sqrt(1 + values**2) - 1)))


def _slope_softened(values: Floats) -> Floats:
    rooted = np.sqrt(1 + values**2)
    return np.asarray(np.sqrt((rooted + 1) / 2) / rooted)


def _fit_blocks(
    blocks: Mapping[str, _Block], sizes: Mapping[str, int], rows: _Rows, miss: Callable[[Params], Floats]
) -> Params:
    """The parameters that miss least, none far from what is believed of it; each has one more, for names never seen.

    ``miss`` has one column for each row. A row depends on one parameter of a block only, so that one step of a whole
    block tells the slopes of all its parameters.
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
        return np.concatenate([miss(unpack(flat)).ravel(), _soften((flat - means) / doubts)])

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

    return unpack(least_squares(weigh, means.copy(), jac=slope, max_nfev=80).x)


_SMALL = 1e-6


def _unseen(block: _Block, part: Floats) -> float:
    return float(part[0]) if block.level == "all" else block.mean


Fold = tuple[Sequence[TimedStep], Sequence[TimedStep]]


def split_by_gpus(rows: Sequence[TimedStep]) -> list[Fold]:
    """Fewer GPUs, and more: beyond a half, and beyond three quarters of the most."""
    most = max(sum(row.placed.gpus) for row in rows)
    bounds = sorted({max(1, most // 2), max(1, most * 3 // 4)})
    folds = [_split(rows, [sum(row.placed.gpus) <= bound for row in rows]) for bound in bounds]
    return [_keep_known(*fold) for fold in folds if all(fold)]


def split_by_cluster(rows: Sequence[TimedStep]) -> list[Fold]:
    """All clusters but one, and that one."""
    names = sorted({row.placed.cluster for row in rows})
    folds = [_split(rows, [row.placed.cluster != name for row in rows]) for name in names]
    return [_keep_known(*fold) for fold in folds if all(fold)]


def _split(rows: Sequence[TimedStep], learned: Sequence[bool]) -> Fold:
    train = [row for row, yes in zip(rows, learned, strict=True) if yes]
    return train, [row for row, yes in zip(rows, learned, strict=True) if not yes]


def _keep_known(train: Sequence[TimedStep], test: Sequence[TimedStep]) -> Fold:
    known = {row.placed.workload for row in train}
    return train, [row for row in test if row.placed.workload in known]


def score_growths(folds: Sequence[Fold]) -> dict[str, float]:
    """The mean error of each growth over folds, as a share; the least one is to be chosen."""
    return {growth: float(np.mean([_score(growth, *fold) for fold in folds])) for growth in GROWTHS}


def _score(growth: str, train: Sequence[TimedStep], test: Sequence[TimedStep]) -> float:
    told = ParallelModel(growth).fit(train).predict([row.placed for row in test])
    return float(np.mean([abs(answer.step_s / row.step_s - 1) for answer, row in zip(told, test, strict=True)]))
