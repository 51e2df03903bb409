"""Splits operators into the tasks of a device: matrix products, convolutions, and passes over memory."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from foretell.core.workload import Attribute, Operator, Shape, StepPhase

PRODUCTS = frozenset({"linear", "matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "addmm", "baddbmm"})
CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
_ITEM = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
_HEAD_WIDTH = 64  # assumed where the number of heads of an attention is unknown


class TaskKind(StrEnum):
    """A kind of task by what limits it."""

    CONVOLUTION = "convolution"
    PRODUCT = "product"
    MEMORY_PASS = "pass"  # noqa: S105


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTask:
    """A task of an operator that a device runs as one kernel, or as two in the backward phase."""

    task_kind: TaskKind
    kind: str
    phase: StepPhase
    sizes: tuple[float, ...]  # see the builders below
    flops: float
    bytes_moved: float
    kernels: int = 1
    item: int = 4
    repeats: int = 1  # how often it runs, one after the other


def split_operator(operator: Operator) -> tuple[DeviceTask, ...]:
    """The tasks of an operator; none if it has no kernels."""
    item = _ITEM.get(operator.dtype, 4)
    if operator.kind in CONVOLUTIONS and len(operator.inputs) > 1 and operator.phase is not StepPhase.UPDATE:
        return _convolution(operator, item)
    if operator.kind in PRODUCTS and len(operator.inputs) > 1 and operator.phase is not StepPhase.UPDATE:
        return _products(operator, item)
    split_attention = _ATTENTIONS.get(operator.kind)
    if split_attention and operator.inputs and len(operator.inputs[0]) > 2:
        return split_attention(operator, item)
    if operator.kernels == 0:
        return ()
    return (_memory_pass(operator, item),)


# Passes over memory. Sizes: first dimension, second, the others, the last, elements written


def _memory_pass(operator: Operator, item: int) -> DeviceTask:
    shape = max((*operator.inputs, operator.output), key=math.prod, default=())
    return DeviceTask(
        task_kind=TaskKind.MEMORY_PASS,
        kind=operator.kind,
        phase=operator.phase,
        sizes=_describe(shape),
        flops=operator.flops,
        bytes_moved=operator.bytes_moved,
        kernels=operator.kernels,
        item=item,
    )


def _describe(shape: Shape) -> tuple[float, ...]:
    first, second = (*shape, 1, 1)[:2]
    rest = math.prod(shape[2:]) if len(shape) > 2 else 1
    return (float(first), float(second), float(rest), float(shape[-1] if shape else 1), float(math.prod(shape)))


def _extra_pass(kind: str, phase: StepPhase, shape: Shape, item: int, *, passes: float, kernels: int = 1) -> DeviceTask:
    """A memory pass of a larger operator."""
    size = float(math.prod(shape))
    return DeviceTask(
        task_kind=TaskKind.MEMORY_PASS, kind=kind, phase=phase, sizes=_describe(shape), flops=size,
        bytes_moved=passes * size * item, kernels=kernels, item=item,
    )  # fmt: skip


# Matrix products. Sizes: rows, columns, inner dimension, number of products


def _product(
    kind: str, phase: StepPhase, sizes: tuple[float, float, float, float], item: int, *, both: bool = True
) -> DeviceTask:
    rows, columns, inner, many = sizes
    times = 1 if phase is StepPhase.FORWARD else 1 + both
    moved = many * (rows * inner + inner * columns + rows * columns) * item
    return DeviceTask(
        task_kind=TaskKind.PRODUCT,
        kind=kind,
        phase=phase,
        sizes=sizes,
        flops=2 * times * many * rows * columns * inner,
        bytes_moved=times * moved,
        kernels=times,
        item=item,
    )


def _products(operator: Operator, item: int) -> tuple[DeviceTask, ...]:
    if operator.kind == "linear":
        return _linear(operator, item)
    first, second = operator.inputs[:2]
    inner = float(first[-1])
    columns = float(second[-1]) if len(second) > 1 else 1.0
    if len(second) <= 2:
        sizes = (math.prod(first) / max(inner, 1), columns, inner, 1.0)
    else:
        many = float(max(math.prod(first[:-2]), math.prod(second[:-2])))
        sizes = (float(first[-2]) if len(first) > 1 else 1.0, columns, inner, many)
    return (_product("matmul", operator.phase, sizes, item, both=operator.input_gradient),)


def _linear(operator: Operator, item: int) -> tuple[DeviceTask, ...]:
    (given, weight), phase = operator.inputs[:2], operator.phase
    inner = float(given[-1])
    rows, columns = math.prod(given) / max(inner, 1), float(weight[0])
    tasks = [_product("linear", phase, (rows, columns, inner, 1.0), item, both=operator.input_gradient)]
    output = (*given[:-1], weight[0])
    if len(operator.inputs) > 2 and phase is StepPhase.BACKWARD:
        tasks.append(_extra_pass("sum", phase, output, item, passes=1.0))
    elif len(operator.inputs) > 2 and len(given) > 3:  # PyTorch adds the bias separately
        tasks.append(_extra_pass("add_", StepPhase.FORWARD, output, item, passes=2.0))
    return tuple(tasks)


# Convolutions. Sizes: images, channels in and out of a group, groups, size in and out, kernel, stride, padding, passes


def _convolution(operator: Operator, item: int) -> tuple[DeviceTask, ...]:
    core = _convolve(operator, item)
    if len(operator.inputs) < 3:
        return (core,)
    kind, passes = ("sum", 1.0) if operator.phase is StepPhase.BACKWARD else ("add_", 2.0)
    return (core, _extra_pass(kind, operator.phase, operator.output, item, passes=passes))


def _convolve(operator: Operator, item: int) -> DeviceTask:
    """A convolution without its bias."""
    (given, weight), output = operator.inputs[:2], operator.output
    if "transpose" in operator.kind:  # the same task with input and output exchanged
        given, output = output, given
    groups = _one(operator.get("groups", 1))
    images, channels = given[0], given[1] if len(given) > 1 else 1
    size_in, size_out, kernel = given[2:], output[2:], weight[2:]
    made = output[1] if len(output) > 1 else weight[0]
    times = 1 + (operator.phase is StepPhase.BACKWARD and operator.input_gradient)
    repeats = groups if 1 < groups < channels else 1  # groups run one by one, except depthwise convolutions
    flops = 2.0 * images * math.prod(size_out) * made * (channels / groups) * math.prod(kernel)
    moved = float(math.prod(given) + math.prod(output) + math.prod(weight)) * item
    sizes = (
        float(images),
        channels / groups,
        made / groups,
        groups / repeats,
        math.prod(size_in) ** 0.5,
        math.prod(size_out) ** 0.5,
        float(kernel[0] if kernel else 1),
        float(kernel[-1] if kernel else 1),
        float(_one(operator.get("stride", 1))),
        float(_one(operator.get("padding", 0))),
        float(times),
    )
    return DeviceTask(
        task_kind=TaskKind.CONVOLUTION,
        kind=operator.kind,
        phase=operator.phase,
        sizes=sizes,
        flops=times * flops / repeats,
        bytes_moved=times * moved / repeats,
        kernels=times,
        item=item,
        repeats=repeats,
    )


def _one(value: Attribute) -> int:
    return value if isinstance(value, int) else (value[0] if value else 1)


# Attention


def _multi_head(operator: Operator, item: int) -> tuple[DeviceTask, ...]:
    """Three projections in one, attention, one projection, and the copies between them."""
    length, batch, width = (*operator.inputs[0], 1)[:3]
    heads = _one(operator.get("num_heads", max(1, width // _HEAD_WIDTH)))
    rows, phase = float(length * batch), operator.phase
    scores = (batch * heads, length, length)
    back = phase is StepPhase.BACKWARD
    return (
        _product("linear", phase, (rows, 3.0 * width, float(width), 1.0), item),
        _extra_pass("clone", StepPhase.FORWARD, (length, batch, 3 * width), item, passes=2.0),
        *_attention_tasks(scores, width // heads, phase, item),
        _extra_pass("clone", StepPhase.FORWARD, (length, batch, width), item, passes=2.0),
        _product("linear", phase, (rows, float(width), float(width), 1.0), item),
        *([_extra_pass("sum", phase, (length, batch, 4 * width), item, passes=1.0, kernels=2)] if back else []),
    )


def _attention(operator: Operator, item: int) -> tuple[DeviceTask, ...]:
    query, key = (operator.inputs + operator.inputs[:1])[:2]
    return _attention_tasks((math.prod(query[:-2]), query[-2], key[-2]), query[-1], operator.phase, item)


def _attention_tasks(scores: Shape, width: int, phase: StepPhase, item: int) -> tuple[DeviceTask, ...]:
    many, queries, keys = (float(size) for size in scores)
    back = phase is StepPhase.BACKWARD
    return (
        _product("matmul", phase, (queries, keys, float(width), many), item),
        _extra_pass("softmax", phase, scores, item, passes=3.0 if back else 2.0),
        _product("matmul", phase, (queries, float(width), keys, many), item),
    )


_ATTENTIONS: dict[str, Callable[[Operator, int], tuple[DeviceTask, ...]]] = {
    "multi_head_attention_forward": _multi_head,
    "scaled_dot_product_attention": _attention,
}
