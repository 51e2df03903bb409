"""What options change in a captured step: layouts of images, products in eight bits, compilation."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.fused_chains import fuse_chains
from foretell.workloads.operator_costs import cost
from foretell.workloads.step_options import StepOptions

Pass: TypeAlias = Callable[[Workload], Workload]

_CONVOLUTIONS = frozenset({"conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"})
_MOST_OPERATORS, _SMALL = 300, 64  # for each convolution; channels
_MULTIPLE = 16  # of the sizes of a product in eight bits: https://github.com/pytorch/ao/tree/main/torchao/float8
_IN_EIGHT_BITS = frozenset({"linear", "grouped_mm", "_grouped_mm"})  # of devices; here, linear layers only
_FP8 = "float8_e4m3fn"
UPDATES = {"sgd": ("_fused_sgd_", 3), "adam": ("_fused_adam_", 4), "adamw": ("_fused_adamw_", 4)}  # and their tensors


def apply_options(workload: Workload, options: StepOptions) -> Workload:
    """The step with everything that options change after it was captured."""
    if options.channels_last or (options.compile and prefers_channels_last(workload)):
        workload = convert_layouts(workload)
    if options.precision == "fp8":
        workload = scale_products(workload)
    if options.compile:
        workload = fuse_chains(fuse_updates(workload))
    return workload


# Layouts


def convert_layouts(workload: Workload) -> Workload:
    """Copies of images to channels last, before each convolution whose input no convolution has made."""
    channels_last: set[int] = set()
    copies: dict[int, list[Operator]] = {}
    for place, operator in enumerate(workload.operators):
        if operator.phase is not StepPhase.FORWARD:
            continue
        given = any(each in channels_last for each in workload.sources[place])
        if operator.kind in _CONVOLUTIONS:
            channels_last.add(place)
            if not given:
                copies[place] = [_build_copy(operator)]
        elif given and len(operator.output) > 3:
            channels_last.add(place)
    settings = {**workload.settings, "channels_last": "yes"}
    return insert_before(replace(workload, settings=settings), copies)


def prefers_channels_last(workload: Workload) -> bool:
    """Whether a compiler lays out the images itself with channels last.

    The rules are those of ``decide_layout_opt`` in
    https://github.com/pytorch/pytorch/blob/main/torch/_inductor/graph.py.
    """
    forward = [each for each in workload.operators if each.phase is StepPhase.FORWARD]
    filters = [each for each in forward if each.kind in _CONVOLUTIONS]
    if not filters or len(forward) >= _MOST_OPERATORS * len(filters):
        return False
    if any(map(_is_grouped, filters)) or any(map(_is_narrowing, filters)):
        return False
    return not all(max(each.inputs[1][:2]) <= _SMALL for each in filters)


def _is_grouped(operator: Operator) -> bool:
    """Groups of several channels; a depthwise convolution has groups of one."""
    return operator.get("groups", 1) != 1 and operator.inputs[1][1] > 1


def _is_narrowing(operator: Operator) -> bool:
    filters, channels, *kernel = operator.inputs[1]
    return filters * 2 <= channels and kernel[0] > 1


def _build_copy(operator: Operator) -> Operator:
    shape = operator.inputs[0]
    moved = 2.0 * math.prod(shape) * _item(operator)
    return Operator(
        kind="clone",
        phase=operator.phase,
        inputs=(shape,),
        output=shape,
        dtype=operator.dtype,
        bytes_moved=moved,
        input_gradient=operator.input_gradient,
    )


# Eight bits


def scale_products(workload: Workload) -> Workload:
    """Linear layers in eight bits, each tensor scaled by its largest value.

    Inputs and weights are scaled in the forward phase, gradients in the backward phase, where two of the three are also
    transposed. Layers whose sizes are no multiples of 16 stay in half precision.
    """
    operators = list(workload.operators)
    scaled: dict[int, list[Operator]] = {}
    for place, operator in enumerate(workload.operators):
        if operator.kind not in _IN_EIGHT_BITS:
            continue
        if operator.kind != "linear" or not _fits(operator):
            operators[place] = replace(operator, attributes=(*operator.attributes, ("fp8", 0)))
            continue
        scaled[place] = list(_build_scalings(operator))
        operators[place] = replace(operator, bytes_moved=_count_scaled_bytes(operator))
    return insert_before(replace(workload, operators=tuple(operators)), scaled)


def _fits(operator: Operator) -> bool:
    given, weight = operator.inputs[:2]
    sizes = (math.prod(given[:-1]), *weight)
    return operator.dtype in ("bfloat16", "float16") and not any(size % _MULTIPLE for size in sizes)


def _build_scalings(operator: Operator) -> Iterator[Operator]:
    given, weight = operator.inputs[:2]
    if operator.phase is StepPhase.FORWARD:
        yield _build_scaling(operator, given)
        yield _build_scaling(operator, weight)
        return
    transposed = 2.0 * (math.prod(given) + math.prod(operator.output))
    gradient = _build_scaling(operator, operator.output)
    yield replace(gradient, bytes_moved=gradient.bytes_moved + transposed, kernels=gradient.kernels + 2)


def _build_scaling(operator: Operator, shape: tuple[int, ...]) -> Operator:
    """The largest value of a tensor is found, then the tensor is scaled and cast."""
    elements = math.prod(shape)
    item = _item(operator)
    return Operator(
        kind="scale_to_fp8",
        phase=operator.phase,
        inputs=(shape,),
        output=shape,
        dtype=_FP8,
        flops=2.0 * elements,
        bytes_moved=float(elements * (2 * item + 1)),
        kernels=2,
    )


def _count_scaled_bytes(operator: Operator) -> float:
    """Factors have one byte, results and biases have that of the layer."""
    given, weight, out = (math.prod(shape) for shape in (*operator.inputs[:2], operator.output))
    item = _item(operator)
    bias = len(operator.inputs) > 2
    if operator.phase is StepPhase.FORWARD:
        return float(given + weight + item * (out + bias * operator.inputs[1][0]))
    moved = out + given + item * weight
    if operator.input_gradient:
        moved += out + weight + item * given
    return float(moved + bias * item * out)


# Updates


def fuse_updates(workload: Workload) -> Workload:
    """The update of many tensors at once in one kernel."""
    updates = [place for place, each in enumerate(workload.operators) if each.phase is StepPhase.UPDATE]
    optimizer = workload.settings.get("optimizer", "")
    chain = [place for place in updates if workload.operators[place].kind.startswith("_foreach_")]
    if optimizer not in UPDATES or not chain:
        return workload
    last = workload.operators[chain[-1]]
    tensors = last.get("tensors", 1)
    shapes = last.inputs[: tensors if isinstance(tensors, int) else 1]
    kind, states = UPDATES[optimizer]
    attributes = (("tensors", len(shapes)),)
    flops, moved, _ = cost(kind, StepPhase.UPDATE, shapes * states, last.output, attributes, itemsize=_item(last))
    flops = sum(workload.operators[place].flops for place in chain) or flops
    one = replace(
        last, kind=kind, inputs=shapes * states, attributes=attributes, flops=flops, bytes_moved=moved, kernels=1
    )
    operators = [one if place == chain[-1] else each for place, each in enumerate(workload.operators)]
    return _merge(replace(workload, operators=tuple(operators)), chain)


def _merge(workload: Workload, chain: Sequence[int]) -> Workload:
    """The workload with the last operator of a chain only, which reads what the others read."""
    dropped = set(chain[:-1])
    kept = [place for place in range(len(workload.operators)) if place not in dropped]
    moved = {place: number for number, place in enumerate(kept)}
    moved |= dict.fromkeys(chain, moved[chain[-1]])
    read = {each for place in chain for each in workload.sources[place]} - set(chain)
    sources = [sorted(read) if place == chain[-1] else workload.sources[place] for place in kept]
    return replace(
        workload,
        operators=tuple(workload.operators[place] for place in kept),
        layers=tuple(workload.layers[place] for place in kept) if workload.layers else (),
        views=tuple(workload.views[place] for place in kept) if workload.views else (),
        sources=tuple(tuple(sorted({moved[each] for each in own})) for own in sources),
        gradients=tuple(replace(each, ready=moved[each.ready]) for each in workload.gradients),
    )


# Places


def insert_before(workload: Workload, inserted: Mapping[int, Sequence[Operator]]) -> Workload:
    """The workload with operators before others: they read what these read, which now read them too."""
    moved: dict[int, int] = {}
    operators: list[Operator] = []
    layers: list[str] = []
    views: list[int] = []
    sources: list[tuple[int, ...]] = []
    for place, operator in enumerate(workload.operators):
        read = tuple(moved[each] for each in workload.sources[place])
        new = inserted.get(place, ())
        begin = len(operators)
        moved[place] = begin + len(new)
        operators += [*new, operator]
        layers += [workload.layers[place]] * (len(new) + 1)
        views += [*[0] * len(new), workload.views[place]]
        sources += [*[read] * len(new), tuple(sorted({*read, *range(begin, begin + len(new))}))]
    return replace(
        workload,
        operators=tuple(operators),
        layers=tuple(layers),
        views=tuple(views),
        sources=tuple(sources),
        gradients=tuple(replace(each, ready=moved[each.ready]) for each in workload.gradients),
    )


def _item(operator: Operator) -> int:
    return {"float16": 2, "bfloat16": 2, "float64": 8}.get(operator.dtype, 4)
