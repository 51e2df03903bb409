"""How long a step of data-parallel training takes where a batch, a placement and a cluster are named.

A step computes a batch on each GPU and synchronises the gradients of all. Computing is bound by the host or by the GPU,
which a few figures of the GPU carry to others. Synchronising is in proportion to the gradients' bytes and grows with
the GPUs of a node and with nodes; a part of it hides behind computing. All numbers are learned together, those of one
workload or cluster leaning on what the others say, so that a cluster never seen has an answer, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import expit, logit

from foretell.core.errors import ImportDataError
from foretell.core.intervals import Spread, bound
from foretell.core.workload import Floats
from foretell.distributed.compute_time import NOISE, Block, Compute, Params, fit_blocks, get_column, soften
from foretell.distributed.measured_range import SPLITS, Fold, Reach
from foretell.distributed.placed_steps import Ints, Names, PlacedStep, Placement, Rows, TimedStep

GROWTHS = ("ring", "power", "limited")  # how synchronisation grows with GPUs and nodes
_SYNC_NOISE = (0.1, 0.05)  # of what is seen of synchronising: of itself, of computing
_LEAST_S = 1e-9
_SUREST = 0.02  # no bounds are nearer, in logs
_MOST_ROWS = 3000  # learned from at once
_MOST_RESTS = 300  # of a workload on a cluster
_MOST_REST = 2.0  # in logs


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelTime:
    """What is told of a step: its time with bounds, and the parts that compute and that wait for gradients."""

    step_s: float
    compute_s: float
    exposed_s: float
    low_s: float
    high_s: float


# In logs, but powers and shares, which are logits where they are limited to one.
_SYNC_BLOCKS = {
    "bytes": Block("workload", 0.0, 1.5),
    "local": Block("all", np.log(0.2), 3.0),  # one node; of what computing takes
    "local_cluster": Block("cluster", 0.0, 1.5),
    "local_pair": Block("pair", 0.0, 0.25),
    "net": Block("all", np.log(0.2), 3.0),  # several nodes
    "net_cluster": Block("cluster", 0.0, 1.5),
    "net_pair": Block("pair", 0.0, 0.25),
    "link_power": Block("all", 0.5, 0.5),  # faster links are used less well
    "overlap": Block("workload", 0.0, 1.0),  # share of computing behind which gradients are sent
    "overlap_pair": Block("pair", 0.0, 0.7),
    "sharpness": Block("all", 0.7, 0.5),  # of the turn from hidden to exposed
    "busy": Block("pair", 3.0, 1.5),  # share of computing that the GPU is busy; the host takes the rest
}
_GROWTH_BLOCKS = {
    "ring": {"hop": Block("all", np.log(1e-4), 2.0), "hop_cluster": Block("cluster", 0.0, 1.5)},
    "power": {
        "local_power": Block("all", 0.5, 0.3),
        "local_power_cluster": Block("cluster", 0.0, 0.3),
        "nodes_power": Block("all", 0.15, 0.3),
        "nodes_power_cluster": Block("cluster", 0.0, 0.3),
        "shared_power": Block("all", 0.5, 0.3),
        "shared_power_cluster": Block("cluster", 0.0, 0.3),
    },
    "limited": {
        "local_power": Block("all", 0.0, 1.0),
        "local_power_cluster": Block("cluster", 0.0, 1.0),
        "nodes_power": Block("all", float(logit(0.15)), 1.0),
        "nodes_power_cluster": Block("cluster", 0.0, 1.0),
        "shared_power": Block("all", 0.0, 1.0),
        "shared_power_cluster": Block("cluster", 0.0, 1.0),
    },
}


class ParallelModel:
    """Learns from a table of steps, tells those of other batches, placements and clusters.

    **Growth.** ``ring``: bytes that a ring sends, and a latency for each hop. ``power``: powers of the GPUs of a node
    and of nodes. ``limited``: the same with powers from 0 to 1.
    **Bounds** are what one would believe, until :meth:`learn_bounds` learns them: from steps of more GPUs, and of
    clusters, left out.
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
        self.names_ = Names.find([row.placed for row in rows])
        self.reach_ = Reach.find([row.placed for row in rows])
        self.spreads_ = {kind: Spread.from_prior() for kind in SPLITS}
        every = self.names_.number([row.placed for row in rows])
        step_s = np.array([row.step_s for row in rows])
        sync_s = np.array([np.nan if row.sync_s is None else row.sync_s for row in rows])
        self.compute_ = Compute.learn(every, _find_computing(every, step_s, sync_s), self.names_)
        chosen = _choose(len(rows))
        few = every.take(chosen)
        self.sync_ = self._learn_sync(few, step_s[chosen], sync_s[chosen])
        self.rests_ = self._learn_rests(few, step_s[chosen]) if self.rest else {}
        return self

    def predict(self, steps: Sequence[PlacedStep], *, level: float = 0.9) -> list[ParallelTime]:
        """The time of each step, in order; within its bounds with probability ``level``.

        Raises:
            NotFoundError: if a workload was never seen.
        """
        if not steps:
            return []
        told, compute = self._answer(steps)
        least, _ = self._answer([self.reach_.find_least(step) for step in steps])
        return [
            self._build(step, time_s=float(time), compute_s=float(alone), level=level)
            for step, time, alone in zip(steps, np.maximum(least, told), compute, strict=True)
        ]

    def _answer(self, steps: Sequence[PlacedStep]) -> tuple[Floats, Floats]:
        """Seconds of each, and those that it computes."""
        rows = self.names_.number(steps)
        told = self._tell(rows) * np.exp(_tell_rests(self.rests_, rows))
        compute = np.where(rows.count > 1, np.minimum(np.exp(self.compute_.tell(rows)), told), told)
        return told, compute

    def learn_bounds(self, rows: Sequence[TimedStep], kinds: Iterable[str] = ("seen", "more", "new")) -> Self:
        """Learn how far answers stray: other batches of placements, more GPUs, clusters never seen; returns itself."""
        for kind in kinds:
            strayed = [each for fold in SPLITS[kind](rows) for each in self._find_strayed(*fold)]
            if strayed:
                far, widths = np.array(strayed).T
                self.spreads_[kind] = Spread.learn(np.exp(far), np.ones(len(far)), widths)
        return self

    def _find_strayed(self, train: Sequence[TimedStep], test: Sequence[TimedStep]) -> Iterator[tuple[float, float]]:
        """How far each placement strays, in logs, and was expected to: batches of a placement stray together."""
        model = ParallelModel(self.growth, rest=self.rest).fit(train)
        groups: dict[tuple[str, str, Placement], list[float]] = {}
        for row, told in zip(test, model.predict([row.placed for row in test]), strict=True):
            key = (row.placed.workload, row.placed.cluster, row.placed.gpus)
            groups.setdefault(key, []).append(float(np.log(row.step_s / told.step_s)))
        steps = {(row.placed.workload, row.placed.cluster, row.placed.gpus): row.placed for row in test}
        for key, logs in groups.items():
            yield (
                float(np.copysign(np.sqrt(np.mean(np.square(logs))), np.mean(logs))),
                model.reach_.find_width(steps[key]),
            )

    def _build(self, step: PlacedStep, *, time_s: float, compute_s: float, level: float) -> ParallelTime:
        spread, width = self.spreads_[self.reach_.find_kind(step)], self.reach_.find_width(step)
        low_s, high_s = bound(time_s, spread, level=level, width=width, least=_SUREST)
        # A step is not shorter than its computing, which is as sure as if its GPUs had been seen.
        sure = 1.0 if self.reach_.find_kind(step) == "new" else self.reach_.find_batch_width(step) / width
        least_s = compute_s * float(np.exp(spread.lower((1 - level) / 2) * width * min(1.0, sure)))
        return ParallelTime(
            step_s=time_s,
            compute_s=compute_s,
            exposed_s=time_s - compute_s,
            low_s=max(float(low_s), min(least_s, time_s * (1 - _SUREST))),
            high_s=float(high_s),
        )

    def _learn_sync(self, rows: Rows, step_s: Floats, sync_s: Floats) -> Params:
        medians = _find_medians(self.compute_.tell(rows), rows.levels["workload"], self.names_.sizes()["workload"])
        several = np.flatnonzero(rows.count > 1)
        rows, step_s, sync_s = rows.take(several), step_s[several], sync_s[several]
        compute = np.exp(self.compute_.tell(rows))
        seen = np.isfinite(sync_s)
        noise = _SYNC_NOISE[0] * np.where(seen, sync_s, 0.0) + _SYNC_NOISE[1] * compute

        def miss(params: Params) -> Floats:
            told, exposed = _law(params, rows, compute, self.growth)
            waits = np.where(seen, sync_s - exposed, 0.0) / noise
            return np.stack([soften(np.log(step_s / told) / NOISE), soften(waits)])

        # Begun where gradients take as long as computing: what hides wholly behind it tells nothing of itself.
        usual = np.array([np.median(medians)])
        begin = {"local": usual, "net": usual, "bytes": medians - usual}
        believed = {
            name: replace(_SYNC_BLOCKS[name], mean=float(usual[0]) + _SYNC_BLOCKS[name].mean)
            for name in ("local", "net")
        }
        blocks = _SYNC_BLOCKS | _GROWTH_BLOCKS[self.growth] | believed
        return fit_blocks(blocks, self.names_.sizes(), rows, miss, begin=begin)

    def _tell(self, rows: Rows) -> Floats:
        return _law(self.sync_, rows, np.exp(self.compute_.tell(rows)), self.growth)[0]

    def _learn_rests(self, rows: Rows, step_s: Floats) -> "dict[int, _Rest]":
        strayed = np.clip(np.log(step_s / self._tell(rows)), -_MOST_REST, _MOST_REST)
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


def _find_computing(rows: Rows, step_s: Floats, sync_s: Floats) -> Floats:
    """Seconds that a step computes, where that is known: alone, or where its waiting was measured."""
    waits = np.where(rows.count == 1, np.nan_to_num(sync_s), sync_s)
    return np.where(step_s > waits, step_s - waits, np.nan)


def _find_medians(values: Floats, levels: Ints, size: int) -> Floats:
    """Of each level; of all where a level has none."""
    usual = float(np.median(values))
    return np.array([np.median(values[levels == n]) if (levels == n).any() else usual for n in range(size)])


def _law(params: Params, rows: Rows, compute: Floats, growth: str) -> tuple[Floats, Floats]:
    """Seconds of each step, and of its synchronising that no computing hides."""
    blocks = _SYNC_BLOCKS | _GROWTH_BLOCKS[growth]

    def get(name: str) -> Floats:
        return get_column(name, params, rows, blocks)

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


def _find_sent(get: Callable[[str], Floats], rows: Rows, growth: str) -> Floats:
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
class _Rest:
    """What the law leaves of a workload on a cluster: a Gaussian process, nothing far from what was seen."""

    points: Floats
    weights: Floats

    @classmethod
    def learn(cls, rows: Rows, strayed: Floats) -> "_Rest":
        chosen = np.unique(np.linspace(0, len(strayed) - 1, min(len(strayed), _MOST_RESTS)).astype(np.int64))
        points, strayed = _locate(rows.take(chosen)), strayed[chosen]
        variance = max(float(np.var(strayed)), 1e-8)
        covariance = variance * _near(points, points) + NOISE**2 * np.eye(len(points))
        return cls(points=points, weights=np.asarray(variance * np.linalg.solve(covariance, strayed), dtype=float))

    def tell(self, rows: Rows) -> Floats:
        return np.asarray(_near(_locate(rows), self.points) @ self.weights)


def _tell_rests(rests: Mapping[int, _Rest], rows: Rows) -> Floats:
    told, pairs = np.zeros(len(rows.batch)), rows.levels["pair"]
    for pair in np.unique(pairs).tolist():
        if pair in rests:
            few = np.flatnonzero(pairs == pair)
            told[few] = rests[pair].tell(rows.take(few))
    return told


def _locate(rows: Rows) -> Floats:
    """Doublings of what a placement is made of."""
    return np.log2(np.column_stack([rows.batch, rows.count, rows.nodes, rows.most]))


def _near(some: Floats, others: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * ((some[:, None] - others[None]) ** 2).sum(axis=2)))


def score_growths(folds: Sequence[Fold]) -> dict[str, float]:
    """The mean error of each growth over folds, as a share; the least one is to be chosen."""
    return {growth: float(np.mean([_score(growth, *fold) for fold in folds])) for growth in GROWTHS}


def _score(growth: str, train: Sequence[TimedStep], test: Sequence[TimedStep]) -> float:
    told = ParallelModel(growth).fit(train).predict([row.placed for row in test])
    return float(np.mean([abs(answer.step_s / row.step_s - 1) for answer, row in zip(told, test, strict=True)]))
