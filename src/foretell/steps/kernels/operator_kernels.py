"""Splits the operators of a step into the kernels that a GPU runs for them."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from foretell.core.workload import Attribute, Operator, Shape, StepPhase
from foretell.steps.device_tasks import CONVOLUTIONS
from foretell.steps.kernels.kernel_calls import FLASH_2, Attention, Convolution, KernelCall, MemoryPass, Product
from foretell.workloads.recurrent_costs import CELLS as RECURRENT_CELLS
from foretell.workloads.recurrent_costs import LAYERS as RECURRENT_LAYERS
from foretell.workloads.recurrent_costs import find_recurrent_sizes

_PRECISIONS = {"float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}
_ITEM = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
_HEAD_WIDTH = 64  # assumed where the number of heads of an attention is unknown
# PyTorch's multi-tensor kernels: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/MultiTensorApply.cuh
_TENSORS_A_LAUNCH = 48
_ELEMENTS_A_LAUNCH = 320 * 65536

Sizes: TypeAlias = tuple[int, int, int, int]  # rows, columns, inner dimension, number of products
Splitter: TypeAlias = Callable[[Operator, str, Mapping[str, str]], tuple[KernelCall, ...]]


def split_kernels(operator: Operator, *, settings: Mapping[str, str]) -> tuple[KernelCall, ...]:
    """The kernels of an operator in their order; none if it runs none on the device.

    A product in float32 has the precision ``tf32`` where the settings say so. A convolution in float32 always has:
    PyTorch lets cuDNN use TF32 on every device that has it.
    """
    if operator.kernels == 0:
        return ()
    splitter = _SPLITTERS.get(operator.kind)
    if splitter is None or operator.phase is StepPhase.UPDATE or len(operator.inputs) < _LEAST_INPUTS:
        return (_whole_pass(operator, settings),)
    return splitter(operator, _find_precision(operator, settings), settings)


_LEAST_INPUTS = 2  # of a product, a convolution or an attention
_FUSED_DIMENSIONS = 4  # batch, heads, positions, width: what fused kernels of attention take


def _find_precision(operator: Operator, settings: Mapping[str, str]) -> str:
    asked = settings.get("precision", "")
    if asked == "fp8" and operator.kind in _IN_FP8 and operator.get("fp8", 1):
        return "fp8"
    return _PRECISIONS.get(operator.dtype, "tf32" if asked == "tf32" else "fp32")


# Passes over memory


def _whole_pass(operator: Operator, settings: Mapping[str, str] | None = None) -> MemoryPass:
    """All kernels of an operator as one pass."""
    if operator.phase is StepPhase.UPDATE:
        return _update_pass(operator)
    shape = max((*operator.inputs, operator.output), key=math.prod, default=())
    known = operator.kind == "batch_norm" and (settings or {}).get("mode") in _WITHOUT_TRAINING
    return MemoryPass(
        kind="batch_norm_inference" if known else operator.kind,
        backward=operator.phase is StepPhase.BACKWARD,
        elements=math.prod(shape),
        row=_find_row(operator, shape),
        bytes_moved=operator.bytes_moved,
        flops=operator.flops,
        kernels=1 if known else operator.kernels,
    )


_WITHOUT_TRAINING = ("inference", "generate")  # means and variances are known, not computed
_ALONG_CHANNELS = frozenset({"batch_norm", "instance_norm", "group_norm"})
_SHRINKING = frozenset({
    "mean", "sum", "amax", "amin", "var", "std", "norm", "adaptive_avg_pool2d", "adaptive_max_pool2d", "max_pool2d",
    "avg_pool2d", "max_pool1d", "avg_pool1d", "max_pool3d", "avg_pool3d",
})  # fmt: skip


def _find_row(operator: Operator, shape: Shape) -> int:
    """The number of elements that are normalized or reduced together; the last dimension otherwise."""
    size = math.prod(shape)
    if operator.kind in ("layer_norm", "rms_norm") and len(operator.inputs) > 1:
        return max(1, math.prod(operator.inputs[1]))
    if operator.kind in _ALONG_CHANNELS and len(shape) > 1:
        parts = shape[1] if operator.kind == "batch_norm" else shape[0] * _one(operator.get("num_groups", shape[1]))
        return max(1, size // max(1, parts))
    if operator.kind in _SHRINKING:
        return max(1, size // max(1, math.prod(operator.output)))
    place = operator.get("dim", -1) if operator.kind in ("softmax", "log_softmax") else -1
    return shape[place] if isinstance(place, int) and -len(shape) <= place < len(shape) else 1


def _update_pass(operator: Operator) -> MemoryPass:
    tensors = _one(operator.get("tensors", 1))
    elements = sum(math.prod(shape) for shape in operator.inputs[:tensors]) or math.prod(operator.output)
    launches = max(math.ceil(tensors / _TENSORS_A_LAUNCH), math.ceil(elements / _ELEMENTS_A_LAUNCH))
    return MemoryPass(
        kind=operator.kind,
        elements=elements,
        row=elements,
        bytes_moved=operator.bytes_moved,
        flops=operator.flops,
        kernels=operator.kernels if tensors == 1 else operator.kernels * launches,
    )


def _sum_pass(operator: Operator, shape: Shape) -> MemoryPass:
    """The gradient of a bias."""
    size = math.prod(shape)
    moved = (size + shape[-1]) * _item(operator)
    return MemoryPass(
        kind="sum", backward=True, elements=size, row=shape[-1], bytes_moved=float(moved), flops=float(size)
    )


def _rest(operator: Operator, used: Iterable[KernelCall]) -> tuple[MemoryPass, ...]:
    """The kernels of an operator besides those already split off: copies of what is not contiguous, scalings."""
    used = tuple(used)
    kernels = operator.kernels - sum(call.kernels if isinstance(call, MemoryPass) else 1 for call in used)
    moved = operator.bytes_moved - sum(_count_bytes(call, _item(operator)) for call in used)
    if kernels <= 0 or moved <= 0:
        return ()
    shape = max((*operator.inputs, operator.output), key=math.prod, default=())
    elements = min(math.prod(shape), max(1, round(moved / (2 * kernels * _item(operator)))))
    row = min(shape[-1] if shape else 1, elements)
    return (
        MemoryPass(
            kind="clone",
            backward=operator.phase is StepPhase.BACKWARD,
            elements=elements,
            row=row,
            bytes_moved=moved,
            kernels=kernels,
        ),
    )


def _count_bytes(call: KernelCall, item: int) -> float:
    if isinstance(call, Product):
        rows, columns, inner = call.rows, call.columns, call.inner
        return float(call.many * (rows * inner + inner * columns + rows * columns) * item)
    return call.bytes_moved if isinstance(call, MemoryPass) else 0.0


def _item(operator: Operator) -> int:
    return _ITEM.get(operator.dtype, 4)


# Matrix products


def _split_product(operator: Operator, precision: str, _settings: Mapping[str, str]) -> tuple[KernelCall, ...]:
    sizes = _SIZES[operator.kind](operator)
    products = _build_products(operator, sizes, precision)
    biased = operator.kind in _BIASED and len(operator.inputs) > 2
    sums: tuple[MemoryPass, ...] = ()
    if biased and operator.phase is StepPhase.BACKWARD and operator.kernels > len(products):
        sums = (_sum_pass(operator, (sizes[0] * sizes[3], sizes[1])),)
    return (*products, *sums, *_rest(operator, (*products, *sums)))


def _build_products(operator: Operator, sizes: Sizes, precision: str) -> tuple[Product, ...]:
    """The product, or those of the gradients that the operator computes."""
    rows, columns, inner, many = sizes
    forward = Product(rows=rows, columns=columns, inner=inner, many=many, precision=precision)
    if operator.phase is StepPhase.FORWARD:
        return (forward,)
    first = Product(rows=rows, columns=inner, inner=columns, many=many, precision=precision)
    second = Product(rows=inner, columns=columns, inner=rows, many=many, precision=precision)
    both = operator.flops >= 1.5 * 2.0 * many * rows * columns * inner if operator.flops else operator.input_gradient
    if both:
        return (first, second)
    return (first if operator.input_gradient and operator.parameters else second,)


def _linear_sizes(operator: Operator) -> Sizes:
    given, weight = operator.inputs[:2]
    return _divide(given), weight[0], given[-1], 1


def _addmm_sizes(operator: Operator) -> Sizes:
    if len(operator.inputs) < 3:
        return _matmul_sizes(operator.inputs, operator.output)
    return _matmul_sizes(operator.inputs[1:3], operator.output)


def _plain_sizes(operator: Operator) -> Sizes:
    return _matmul_sizes(operator.inputs[:2], operator.output)


def _matmul_sizes(factors: tuple[Shape, ...], output: Shape) -> Sizes:
    first, second = factors
    inner = first[-1] if first else 1
    columns = second[-1] if len(second) > 1 else 1
    if len(second) <= 2:  # one matrix for all rows
        return _divide(first), columns, inner, 1
    rows = first[-2] if len(first) > 1 else 1
    return rows, columns, inner, max(1, math.prod(output) // max(1, rows * columns))


def _grouped_sizes(operator: Operator) -> Sizes:
    """Products of as many rows each as there are on average."""
    first, second = operator.inputs[:2]
    if len(first) > 2 or len(second) < 3:
        return _plain_sizes(operator)
    return math.ceil(first[0] / second[0]), second[-1], first[-1], second[0]


def _counted_sizes(operator: Operator) -> Sizes:
    """Of a product whose dimensions are named, as in einsum, from its operations and the sizes of its tensors."""
    passes = 1 if operator.phase is StepPhase.FORWARD else 1 + operator.input_gradient
    work = max(1.0, operator.flops / 2 / passes)  # many x rows x columns x inner
    first, second, output = (max(1, math.prod(shape)) for shape in (*operator.inputs[:2], operator.output))
    rows, columns, inner = (max(1, round(work / size)) for size in (second, first, output))
    return rows, columns, inner, max(1, round(work / (rows * columns * inner)))


def _divide(shape: Shape) -> int:
    """Rows of a tensor whose last dimension is the inner one."""
    return math.prod(shape[:-1]) if shape else 1


_SIZES: dict[str, Callable[[Operator], Sizes]] = {
    "linear": _linear_sizes,
    **dict.fromkeys(("matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "_scaled_mm"), _plain_sizes),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm_sizes),
    **dict.fromkeys(("_grouped_mm", "grouped_mm", "_scaled_grouped_mm"), _grouped_sizes),
    **dict.fromkeys(("einsum", "tensordot", "addbmm", "inner"), _counted_sizes),
}
_BIASED = frozenset({"linear", "addmm"})
_IN_FP8 = frozenset({"linear", "_grouped_mm", "grouped_mm", "_scaled_mm", "_scaled_grouped_mm"})


# Convolutions


def _split_convolution(operator: Operator, precision: str, settings: Mapping[str, str]) -> tuple[KernelCall, ...]:
    one = _build_convolution(operator, precision, settings)
    forward, data = ("data", "forward") if "transpose" in operator.kind else ("forward", "data")
    if operator.phase is StepPhase.FORWARD:
        return (replace(one, direction=forward), *_list_bias_passes(operator, settings))
    flops = 2.0 * one.images * math.prod(one.size_out) * one.filters * one.channels / one.groups * math.prod(one.kernel)
    directions = [data, "weights"]
    if operator.flops < 1.5 * flops:
        directions = [data if operator.input_gradient else "weights"]
    kernels = tuple(replace(one, direction=direction) for direction in directions)
    biased = len(operator.inputs) > 2 and operator.kernels > len(kernels)
    return (*kernels, *([_sum_pass(operator, operator.output)] if biased else []))


def _build_convolution(operator: Operator, precision: str, settings: Mapping[str, str]) -> Convolution:
    given, weight, output = operator.inputs[0], operator.inputs[1], operator.output
    dimensions = len(weight) - 2
    given, output = ((1, *shape) if len(shape) == dimensions + 1 else shape for shape in (given, output))
    if "transpose" in operator.kind:  # the same with input and output exchanged
        given, output = output, given
    stride = operator.get("stride", 1)
    return Convolution(
        images=given[0],
        channels=given[1],
        filters=output[1],
        groups=_one(operator.get("groups", 1)),
        size_in=_flatten(given[2:]),
        size_out=_flatten(output[2:]),
        kernel=_flatten(weight[2:]),
        stride=stride if isinstance(stride, int) else max(stride, default=1),
        channels_last=settings.get("channels_last") == "yes",
        precision="tf32" if precision == "fp32" else precision,
    )


def _flatten(size: Shape) -> tuple[int, int]:
    """One or three dimensions as two."""
    return math.prod(size[:-1]), size[-1]


def _list_bias_passes(operator: Operator, settings: Mapping[str, str]) -> list[MemoryPass]:
    """PyTorch adds the bias of a convolution afterwards, a compiler in the next kernel."""
    if len(operator.inputs) <= _LEAST_INPUTS or settings.get("compile") == "yes":
        return []
    size = math.prod(operator.output)
    added = MemoryPass(kind="add_", elements=size, row=operator.output[-1], bytes_moved=2.0 * size * _item(operator))
    return [added]


def _one(value: Attribute) -> int:
    return value if isinstance(value, int) else (value[0] if value else 1)


# Attention


def _split_attention(operator: Operator, precision: str, settings: Mapping[str, str]) -> tuple[KernelCall, ...]:
    query, key = operator.inputs[:2]
    if len(query) < 3:
        return (_whole_pass(operator),)
    if len(query) != _FUSED_DIMENSIONS:
        return _split_plain_attention(operator)
    return (
        Attention(
            batch=query[0],
            heads=query[1],
            key_heads=_one(operator.get("key_heads", key[1])),
            queries=query[-2],
            keys=key[-2],
            width=query[-1],
            causal=bool(_one(operator.get("causal", 0))),
            backward=operator.phase is StepPhase.BACKWARD,
            precision=precision,
            library=settings.get("attention", FLASH_2),
        ),
    )


def _split_plain_attention(operator: Operator) -> tuple[KernelCall, ...]:
    """PyTorch's fallback for tensors that fused kernels do not take: scaled products and a softmax, in float32.

    https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/attention.cpp
    """
    query, key = operator.inputs[:2]
    back, many = operator.phase is StepPhase.BACKWARD, math.prod(query[:-2])
    sizes = ((query[-2], key[-2], query[-1], many), (query[-2], query[-1], key[-2], many))
    products = [product for each in sizes for product in _double(operator, each, "fp32")]
    scores, given = many * query[-2] * key[-2], sum(math.prod(shape) for shape in operator.inputs[:3])
    masked = 3 * scores if len(operator.inputs) > 3 and not back else 0
    return (
        *products,
        _single_pass("softmax", back, scores, key[-2], (3 if back else 2) * scores),
        _single_pass("__mul__", back, given, query[-1], 4 * given),
        *([_single_pass("__add__", False, scores, key[-2], masked)] if masked else ()),
    )


def _single_pass(kind: str, backward: bool, elements: int, row: int, moved: int) -> MemoryPass:
    """A pass over so many elements in float32."""
    return MemoryPass(
        kind=kind, backward=backward, elements=elements, row=row, bytes_moved=4.0 * moved, flops=float(elements)
    )


def _split_multi_head(operator: Operator, precision: str, _settings: Mapping[str, str]) -> tuple[KernelCall, ...]:
    """The projections, the products of the attention and its softmax, and the copies and scalings in between."""
    length, batch, width = (*operator.inputs[0], 1, 1)[:3]
    keys = operator.inputs[1][0] if len(operator.inputs[1]) > 1 else length
    heads = _one(operator.get("num_heads", max(1, width // _HEAD_WIDTH)))
    rows, many, head = length * batch, batch * heads, width // heads
    projections = [(rows, 3 * width, width, 1)]
    if operator.inputs[1] != operator.inputs[0]:
        projections = [(rows, width, width, 1), (keys * batch, 2 * width, width, 1)]
    back = operator.phase is StepPhase.BACKWARD
    attention = [] if operator.get("fused", 0) else [(length, keys, head, many), (length, head, keys, many)]
    sizes = (*projections, *attention, (rows, width, width, 1))
    products = [product for each in sizes for product in _double(operator, each, precision)]
    if not attention:
        one = Attention(
            batch=batch,
            heads=heads,
            key_heads=heads,
            queries=length,
            keys=keys,
            width=head,
            causal=bool(_one(operator.get("causal", 0))),
            backward=back,
            precision=precision,
        )
        return (*products, one, *_rest(operator, (*products, one)))
    scores = many * length * keys
    softmax = MemoryPass(
        kind="softmax",
        backward=back,
        elements=scores,
        row=keys,
        bytes_moved=float((3 if back else 2) * scores * _item(operator)),
        flops=float(scores),
    )
    return (*products, softmax, *_rest(operator, (*products, softmax)))


def _double(operator: Operator, sizes: Sizes, precision: str) -> tuple[Product, ...]:
    """A product, or those of both gradients."""
    rows, columns, inner, many = sizes
    if operator.phase is StepPhase.FORWARD:
        return (Product(rows=rows, columns=columns, inner=inner, many=many, precision=precision),)
    return (
        Product(rows=rows, columns=inner, inner=columns, many=many, precision=precision),
        Product(rows=inner, columns=columns, inner=rows, many=many, precision=precision),
    )


# Recurrent layers


def _split_recurrent(operator: Operator, precision: str, _settings: Mapping[str, str]) -> tuple[KernelCall, ...]:
    """For each layer one product for all inputs; for each step one with the state before, and the gates."""
    sizes = find_recurrent_sizes(operator)
    if not sizes.read:
        return (_whole_pass(operator),)
    rows, steps = max(1, round(sizes.rows)), sizes.steps
    back = operator.phase is StepPhase.BACKWARD
    calls: list[KernelCall] = []
    for columns, inner in sizes.read:
        calls += _double(operator, (rows * steps, columns, inner, 1), precision)[: 1 + back]
    for columns, inner in sizes.kept:
        one = Product(rows=rows, columns=columns, inner=inner, precision=precision)
        calls += [replace(one, columns=inner, inner=columns) if back else one] * steps
        calls += [replace(one, rows=columns, columns=inner, inner=rows * steps)] * back
        elements = rows * columns
        calls.append(
            MemoryPass(
                kind=operator.kind,
                backward=back,
                elements=elements,
                row=columns,
                bytes_moved=float(steps * rows * (3 * columns + 3 * inner) * _item(operator)),
                flops=float(steps * elements),
                kernels=steps,
            )
        )
    return tuple(calls)


_SPLITTERS: dict[str, Splitter] = {
    **dict.fromkeys((*RECURRENT_LAYERS, *RECURRENT_CELLS), _split_recurrent),
    **dict.fromkeys(_SIZES, _split_product),
    **dict.fromkeys(CONVOLUTIONS, _split_convolution),
    "scaled_dot_product_attention": _split_attention,
    "multi_head_attention_forward": _split_multi_head,
}
