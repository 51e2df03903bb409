"""Builds the runs of a sweep, or those that fit a budget."""

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.apps.where import Where
from foretell.core.app import App, ResourceSweep, Scale, Value
from foretell.core.run import Allocation, RunSpec

_SCALES = (Scale.SCALED_DOWN, Scale.FULL_SCALE)


def count_runs(app: App) -> int:
    """Return the number of runs of both sweeps without duplicates, before ``where`` excludes any."""
    scaled_down, full_scale = (_list_axes(app, scale) for scale in _SCALES)
    shared = [set(few) & set(many) for few, many in zip(scaled_down, full_scale, strict=True)]
    return app.repetitions * (_count(scaled_down) + _count(full_scale) - _count(shared))


def has_allowed(app: App) -> bool:
    """Return whether ``where`` leaves anything to run."""
    return any(True for scale in _SCALES for _ in list_configurations(app, scale))


def list_configurations(app: App, scale: Scale) -> Iterator[tuple[dict[str, Value], Allocation]]:
    """Yield parameters and allocation of each configuration of a sweep; one in both sweeps is full-scale."""
    full = [set(axis) for axis in _list_axes(app, Scale.FULL_SCALE)]
    axes = _list_axes(app, scale)
    is_full = scale is Scale.FULL_SCALE
    if not is_full and all(known.issuperset(axis) for known, axis in zip(full, axes, strict=True)):
        return
    where, names = Where(app), app.parameter_names()
    sizes = list(_list_allocations(app.full_scale_resources if is_full else app.scaled_down_resources))
    for values in itertools.product(*_list_domains(app, scale)):
        parameters = dict(zip(names, values, strict=True))
        for allocation in sizes:
            if not is_full and _is_in(full, (*values, *_list_resources(allocation))):
                continue
            if where.find_broken(parameters, allocation) is None:
                yield parameters, allocation


def _list_domains(app: App, scale: Scale) -> list[tuple[Value, ...]]:
    is_full = scale is Scale.FULL_SCALE
    domains = (parameter.full_scale if is_full else parameter.scaled_down for parameter in app.parameters)
    return [domain.values for domain in domains]


def _list_axes(app: App, scale: Scale) -> list[Sequence[Value | None]]:
    """Return the values of each parameter, then those of each resource."""
    resources = app.full_scale_resources if scale is Scale.FULL_SCALE else app.scaled_down_resources
    sizes = (resources.cores, resources.memory_bytes, resources.gpus, resources.nodes)
    return [*_list_domains(app, scale), *sizes]


def _count(axes: Sequence[Collection[Value | None]]) -> int:
    return math.prod(len(axis) for axis in axes)


def _list_allocations(resources: ResourceSweep) -> Iterator[Allocation]:
    combinations = itertools.product(resources.cores, resources.memory_bytes, resources.gpus, resources.nodes)
    for cores, memory_bytes, gpus, nodes in combinations:
        yield Allocation(cores=cores, memory_bytes=memory_bytes, gpus=gpus, nodes=nodes)


def _list_resources(allocation: Allocation) -> tuple[int | None, ...]:
    return allocation.cores, allocation.memory_bytes, allocation.gpus, allocation.nodes


def _is_in(axes: Sequence[Collection[Value | None]], values: Sequence[Value | None]) -> bool:
    return all(value in axis for value, axis in zip(values, axes, strict=True))


_FULL_SCALE_SHARE = 1 / 3
_SHORTEST_S = 1e-3  # smallest cost of a run, when it is compared with its benefit


def build_sweep(app: App) -> tuple[RunSpec, ...]:
    """Return every scaled-down run, then every full-scale one; a configuration in both is full-scale."""
    return tuple(
        RunSpec(
            app=app.name,
            parameters=parameters,
            allocation=allocation,
            scale=scale,
            repetition=repetition,
            version=app.version,
        )
        for scale in (Scale.SCALED_DOWN, Scale.FULL_SCALE)
        for parameters, allocation in list_configurations(app, scale)
        for repetition in range(app.repetitions)
    )


def pick_within(
    specs: Sequence[RunSpec],
    seconds: Sequence[float],
    *,
    budget_s: float,
    at_once: int,
    sizes: Sequence[float] | None = None,
) -> tuple[RunSpec, ...]:
    """Return a space-filling part of a sweep that fits the budget, short runs first.

    ``seconds`` are the expected times of runs, ``sizes`` the number of parallel slots (of ``at_once``) that each run
    takes, one by default. A third of the budget is reserved for full-scale runs, more if their shortest needs more,
    less if the shortest other one does; what one scale does not use, the other may.
    """
    expected = np.asarray(seconds, dtype=float)
    costs = np.where(expected <= budget_s, expected * np.asarray(1.0 if sizes is None else sizes), np.inf)
    order = np.argsort(costs, kind="stable")  # so that the shorter of equal runs comes first
    ordered = [specs[index] for index in order]
    full = np.array([spec.scale is Scale.FULL_SCALE for spec in ordered], dtype=bool)
    capacity = budget_s * at_once
    if costs.sum() <= capacity:
        return tuple(ordered)
    picker = _Picker(ordered, costs[order])
    picker.fill(full, up_to=_keep_for_full_scale(picker.costs, full, capacity))
    picker.fill(~full, up_to=capacity)
    picker.fill(full, up_to=capacity)
    return tuple(itertools.compress(ordered, picker.picked))


def _keep_for_full_scale(costs: NDArray[np.float64], full: NDArray[np.bool_], capacity: float) -> float:
    cheapest = np.min(costs[full], initial=np.inf)
    cheapest_other = np.min(costs[~full], initial=np.inf)
    if not np.isfinite(cheapest_other):
        return capacity
    share = capacity * _FULL_SCALE_SHARE
    return min(max(share, cheapest), capacity - cheapest_other) if cheapest + cheapest_other <= capacity else share


class _Picker:
    """Picks runs: first the cheapest, then the one with the largest distance from those picked for its cost.

    Distances are squared, so that one run is worth two at half its distance and price, and corners are chosen too.
    """

    def __init__(self, specs: Sequence[RunSpec], costs: NDArray[np.float64]) -> None:
        self.costs = costs
        self.picked = np.zeros(len(specs), dtype=bool)
        self.spent = 0.0
        self._numbers, self._labels = _build_coordinates(specs)
        self._distance = np.full(len(specs), np.inf)

    def fill(self, candidates: NDArray[np.bool_], *, up_to: float) -> None:
        """Pick among the candidates until none fits."""
        while True:
            fitting = np.flatnonzero(candidates & ~self.picked & (self.spent + self.costs <= up_to))
            if not len(fitting):
                return
            gain = self._distance[fitting] / np.maximum(self.costs[fitting], _SHORTEST_S)
            self._pick(int(fitting[np.argmax(gain)]))

    def _pick(self, index: int) -> None:
        self.picked[index] = True
        self.spent += float(self.costs[index])
        squared = np.square(self._numbers - self._numbers[:, [index]]).sum(axis=0)
        differing = np.count_nonzero(self._labels != self._labels[:, [index]], axis=0)
        np.minimum(self._distance, squared + differing, out=self._distance)


def _build_coordinates(specs: Sequence[RunSpec]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return numbers between 0 and 1 (log scale if all are positive), and labels that are equal or not."""
    numbers: list[NDArray[np.float64]] = []
    labels: list[NDArray[np.int64]] = []
    for column in filter(_varies, _columns(specs)):
        if any(isinstance(value, bool | str) for value in column):
            labels.append(np.unique([str(value) for value in column], return_inverse=True)[1])
        else:
            numbers.append(_normalise(np.array(column, dtype=float)))
    shapes = (len(numbers), len(specs)), (len(labels), len(specs))
    return np.reshape(numbers, shapes[0]), np.reshape(labels, shapes[1])


def _varies(column: Sequence[Value]) -> bool:
    return any(value != column[0] for value in column)


def _columns(specs: Sequence[RunSpec]) -> Iterator[list[Value]]:
    for name in specs[0].parameters if specs else ():
        yield [spec.parameters[name] for spec in specs]
    yield [spec.allocation.cores for spec in specs]
    yield [spec.allocation.memory_bytes or 0 for spec in specs]
    yield [spec.allocation.gpus for spec in specs]
    yield [spec.allocation.nodes for spec in specs]


def _normalise(column: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(column).max()  # first, because the difference of huge numbers overflows
    scaled = np.log(column) if (column > 0).all() else column / largest
    spread = float(np.ptp(scaled)) or 1.0  # 0: numbers that differ only beyond the precision of a float
    normalised: NDArray[np.float64] = (scaled - scaled.min()) / spread
    return normalised
