"""Fuses chains of operators as a compiler does: what they pass to each other stays in registers.

Element-wise operators, row-wise norms and reductions, casts and copies join the operators whose results they read, if
these have work of similar size. Products, convolutions, pooling and calls that gather or sort keep their own kernels. A
chain reads what comes from outside once, and writes what others
read. Tensors that the backward phase needs are computed again from what the chain read, not stored.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from foretell.core.workload import Gradient, Operator, StepPhase, Workload
from foretell.workloads.chain_search import count_elements, find_chains, is_fusible, reads_twice

FUSED = "fused"  # kind of a chain of several operators
_ITEM = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1, "int8": 1}


def fuse_chains(workload: Workload) -> Workload:
    """The workload with a kernel for each chain; equal operators are one object."""
    workload = drop_repeated_casts(workload)
    chains = find_chains(workload)
    place_of = {place: number for number, chain in enumerate(chains) for place in chain.places}
    readers = _find_readers(workload)
    known: dict[Operator, Operator] = {}
    operators, layers, sources = [], [], []
    for number, chain in enumerate(chains):
        operator = _build(workload, chain.places, place_of, readers)
        operators.append(known.setdefault(operator, operator))
        layers.append(workload.layers[chain.places[-1]] if workload.layers else "")
        read = {place_of[each] for place in chain.places for each in workload.sources[place]}
        sources.append(tuple(sorted(read - {number})))
    return replace(
        workload,
        operators=tuple(operators),
        layers=tuple(layers) if workload.layers else (),
        views=(0,) * len(operators),
        sources=tuple(sources),
        gradients=_move_gradients(workload.gradients, place_of),
    )


def _find_readers(workload: Workload) -> dict[int, set[int]]:
    readers: dict[int, set[int]] = {}
    for place, own in enumerate(workload.sources):
        for each in own:
            readers.setdefault(each, set()).add(place)
    return readers


# The cost of a chain


def _build(
    workload: Workload, places: Sequence[int], place_of: Mapping[int, int], readers: Mapping[int, set[int]]
) -> Operator:
    """One operator for a chain; an operator that is alone keeps its own cost, but for what its kernel can spare."""
    members = [workload.operators[place] for place in places]
    if not all(map(is_fusible, members)):
        return members[0]
    bases = {place: _count_base(workload.operators[place]) for place in places}
    spared = sum(_list_spared(workload, places, place_of, readers, bases))
    twice = [each for each in members if reads_twice(each)]
    if len(members) == 1:
        return replace(members[0], bytes_moved=bases[places[0]], kernels=1 + len(twice))
    written = sum(_count_result(workload.operators[place]) for place in _find_written(places, readers, workload))
    largest = max(members, key=count_elements)
    return Operator(
        kind=FUSED,
        phase=members[0].phase,
        inputs=(max((*largest.inputs, largest.output), key=math.prod),),
        output=members[-1].output,
        attributes=(("operators", len(members)),),
        dtype=largest.dtype,
        flops=sum(each.flops for each in members),
        bytes_moved=max(sum(bases.values()) - spared, written, 0.0),
        parameters=sum(each.parameters for each in members),
        kernels=1 + len(twice),
        input_gradient=any(each.input_gradient for each in members),
    )


def _list_spared(
    workload: Workload,
    places: Sequence[int],
    place_of: Mapping[int, int],
    readers: Mapping[int, set[int]],
    bases: Mapping[int, float],
) -> Iterator[float]:
    """Bytes that the operators of a chain need not move: what they pass on, read twice, or compute again."""
    inside = set(places)
    written = set(_find_written(places, readers, workload))
    outside: set[int] = set()
    for place in places:
        operator = workload.operators[place]
        if place not in written:
            yield _count_result(operator)
        partner = _find_partner(workload, place)
        for each in workload.sources[place]:
            if each == partner:
                continue
            if each in inside or each in outside:
                yield min(_count_result(workload.operators[each]), bases[place])
            outside.add(each)
        if partner is not None and _is_inside(workload, partner, place_of):
            own = bases[place] - _count_result(operator) - math.prod(operator.output) * _item(operator)
            yield max(0.0, own)


def _find_written(places: Sequence[int], readers: Mapping[int, set[int]], workload: Workload) -> list[int]:
    """Operators of a chain whose results others read; a backward phase computes its own again."""
    inside = set(places)
    found = []
    for place in places:
        read = readers.get(place, set())
        others = [each for each in read - inside if _find_partner(workload, each) != place]
        if others or not read:
            found.append(place)
    return found or [places[-1]]


def _find_partner(workload: Workload, place: int) -> int | None:
    """The operator of the forward phase that one of the backward phase belongs to."""
    operator = workload.operators[place]
    if operator.phase is not StepPhase.BACKWARD:
        return None
    for each in workload.sources[place]:
        other = workload.operators[each]
        if other.kind == operator.kind and other.phase is StepPhase.FORWARD and other.inputs == operator.inputs:
            return each
    return None


def _is_inside(workload: Workload, place: int, place_of: Mapping[int, int]) -> bool:
    """Whether an operator reads what its own chain makes."""
    return any(place_of[each] == place_of[place] for each in workload.sources[place])


def _count_base(operator: Operator) -> float:
    """Bytes of an operator in one kernel: inputs, output, and in the backward phase gradients."""
    if reads_twice(operator):
        backward = operator.phase is StepPhase.BACKWARD  # reads the gradient and the input again
        return operator.bytes_moved + _count_result(operator) * (1 + backward)
    if operator.kernels <= 1:
        return operator.bytes_moved
    given = sum(math.prod(shape) for shape in operator.inputs)
    elements = given + math.prod(operator.output)
    if operator.phase is StepPhase.BACKWARD:
        elements += given
    return min(operator.bytes_moved, float(elements * _item(operator)))


def _count_result(operator: Operator) -> float:
    """Bytes of what an operator makes: in the backward phase, the gradient of its first input."""
    backward = operator.phase is StepPhase.BACKWARD and bool(operator.inputs)
    return float(math.prod(operator.inputs[0] if backward else operator.output) * _item(operator))


def _item(operator: Operator) -> int:
    return _ITEM.get(operator.dtype, 4)


def _move_gradients(gradients: Iterable[Gradient], place_of: Mapping[int, int]) -> tuple[Gradient, ...]:
    """Gradients are ready after the chains that make them, in the same order."""
    last, moved = 0, []
    for each in gradients:
        last = max(last, place_of[each.ready])
        moved.append(replace(each, ready=last))
    return tuple(moved)


# Casts


def drop_repeated_casts(workload: Workload) -> Workload:
    """The workload in which each tensor is cast once, although several operators cast it."""
    first: dict[tuple[object, ...], int] = {}
    same: dict[int, int] = {}
    for place, operator in enumerate(workload.operators):
        key = (operator, workload.sources[place])
        if _is_whole_cast(workload, place) and first.setdefault(key, place) != place:
            same[place] = first[key]
    if not same:
        return workload
    kept = [place for place in range(len(workload.operators)) if place not in same]
    moved = {place: number for number, place in enumerate(kept)}
    moved |= {place: moved[other] for place, other in same.items()}
    return replace(
        workload,
        operators=tuple(workload.operators[place] for place in kept),
        layers=tuple(workload.layers[place] for place in kept) if workload.layers else (),
        views=tuple(workload.views[place] for place in kept) if workload.views else (),
        sources=tuple(tuple(sorted({moved[each] for each in workload.sources[place]})) for place in kept),
        gradients=_move_gradients(workload.gradients, moved),
    )


def _is_whole_cast(workload: Workload, place: int) -> bool:
    """Whether an operator casts all of what one other made."""
    operator, sources = workload.operators[place], workload.sources[place]
    if operator.kind != "to" or operator.phase is not StepPhase.FORWARD or len(sources) != 1:
        return False
    return math.prod(workload.operators[sources[0]].output) == math.prod(operator.output)
