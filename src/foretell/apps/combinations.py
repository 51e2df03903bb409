"""What an app's values multiply out to: counted without being made, or listed without what ``where`` excludes."""

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

from foretell.apps.where import Where
from foretell.entities.app import App, ResourceSweep, Scale, Value
from foretell.entities.run import Allocation

_SCALES = (Scale.SCALED_DOWN, Scale.FULL_SCALE)


def count_runs(app: App) -> int:
    """The runs of both sweeps, each once, before ``where`` excludes any."""
    scaled_down, full_scale = (_list_axes(app, scale) for scale in _SCALES)
    shared = [set(few) & set(many) for few, many in zip(scaled_down, full_scale, strict=True)]
    return app.repetitions * (_count(scaled_down) + _count(full_scale) - _count(shared))


def has_allowed(app: App) -> bool:
    """Whether ``where`` leaves anything to run."""
    return any(True for scale in _SCALES for _ in list_configurations(app, scale))


def list_configurations(app: App, scale: Scale) -> Iterator[tuple[dict[str, Value], Allocation]]:
    """Parameters and allocation of each configuration of a sweep; one that both sweeps have is full-scale."""
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
    """The values of each parameter, then those of each resource."""
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
