"""Costs of matrix products, convolutions and attention, from their shapes.

A kernel reads each of its inputs and writes each of its outputs once. A multiplication and its addition count as two
operations.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from foretell.core.workload import Attribute, Shape

INDEX_BYTES = 8  # of an int64
HEAD_WIDTH = 64  # assumed where the number of heads of an attention is unknown


class Kernel(NamedTuple):
    """One kernel of an operator."""

    flops: float
    elements: float  # of the tensors' own type, read and written
    other_bytes: float = 0.0  # of masks and indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operator whose cost is computed."""

    inputs: tuple[Shape, ...]
    output: Shape
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    input_gradient: bool = True

    @property
    def first(self) -> float:
        """Elements of the first input; of the output if no input is known."""
        return count(self.inputs[0]) if self.inputs else self.out

    @property
    def out(self) -> float:
        """Elements of the output; of the first input if the output is unknown."""
        return count(self.output) if self.output or not self.inputs else count(self.inputs[0])

    def whole(self, name: str, default: int) -> int:
        """An attribute as one number."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else math.prod(value)


Rule: TypeAlias = Callable[[Call], list[Kernel]]


def count(shape: Shape) -> float:
    """Elements of a tensor."""
    return float(math.prod(shape))


# Matrix products


def _product(rows: float, inner: float, columns: float, batch: float = 1.0) -> Kernel:
    return Kernel(2 * batch * rows * inner * columns, batch * (rows * inner + inner * columns + rows * columns))


def _linear_sizes(call: Call) -> tuple[float, float, float, bool]:
    inner = float(call.inputs[0][-1])
    rows = call.first / inner
    columns = float(call.inputs[1][0]) if len(call.inputs) > 1 else call.out / rows
    return rows, inner, columns, len(call.inputs) > 2  # input, weight, bias


def _linear(call: Call) -> list[Kernel]:
    rows, inner, columns, biased = _linear_sizes(call)
    return [_biased(_product(rows, inner, columns), columns * biased)]


def _linear_backward(call: Call) -> list[Kernel]:
    rows, inner, columns, biased = _linear_sizes(call)
    kernels = [_product(rows, columns, inner)] if call.input_gradient else []
    kernels.append(_product(columns, rows, inner))
    if biased:
        kernels.append(Kernel(rows * columns, rows * columns + columns))
    return kernels


def _addmm(call: Call) -> list[Kernel]:
    return _linear(_as_linear(call))


def _addmm_backward(call: Call) -> list[Kernel]:
    return _linear_backward(_as_linear(call))


def _as_linear(call: Call) -> Call:
    bias, first, second = call.inputs[:3]
    return replace(call, inputs=(first, second[::-1], bias))


def _matmul_sizes(call: Call) -> tuple[float, float, float, float]:
    first, second = (call.inputs + call.inputs[:1])[:2]
    inner = float(first[-1])
    columns = float(second[-1]) if len(second) > 1 else 1.0
    if len(second) <= 2:  # one matrix for all rows
        return count(first) / inner, inner, columns, 1.0
    batch = max(count(first[:-2]), count(second[:-2]))
    return float(first[-2]) if len(first) > 1 else 1.0, inner, columns, batch


def _matmul(call: Call) -> list[Kernel]:
    return [_product(*_matmul_sizes(call))]


def _matmul_backward(call: Call) -> list[Kernel]:
    rows, inner, columns, batch = _matmul_sizes(call)
    second = [_product(inner, rows, columns, batch)] if call.input_gradient else []
    return [_product(rows, columns, inner, batch), *second]


# Convolutions


def _conv_sizes(call: Call) -> tuple[float, float, float]:
    """Operations of one pass, elements of the weight and of the bias."""
    weight = call.inputs[1]
    transposed = call.whole("transposed", 0)
    positions = call.first if transposed else call.out
    bias = count(call.inputs[2]) if len(call.inputs) > 2 else 0.0  # input, weight, bias
    return 2 * positions * count(weight[1:]), count(weight), bias


def _conv(call: Call) -> list[Kernel]:
    flops, weight, bias = _conv_sizes(call)
    return [Kernel(flops, call.first + weight + bias + call.out)]


def _conv_backward(call: Call) -> list[Kernel]:
    flops, weight, bias = _conv_sizes(call)
    one = Kernel(flops, call.first + weight + call.out)
    sums = [Kernel(call.out, call.out + bias)] if bias else []
    return [one] * (1 + call.input_gradient) + sums


def _conv_transposed(call: Call) -> list[Kernel]:
    return _conv(_as_transposed(call))


def _conv_transposed_backward(call: Call) -> list[Kernel]:
    return _conv_backward(_as_transposed(call))


def _as_transposed(call: Call) -> Call:
    return replace(call, attributes={**call.attributes, "transposed": 1})


# Attention


def _attention_sizes(call: Call) -> tuple[float, float, float, float]:
    """Batch times heads, queries, keys and width of a head."""
    query, key = (call.inputs + call.inputs[:1])[:2]
    return count(query[:-2]), float(query[-2]), float(key[-2]), float(query[-1])


def _attention(call: Call) -> list[Kernel]:
    """Two products in one kernel, which keeps no scores."""
    batch, queries, keys, width = _attention_sizes(call)
    return [Kernel(4 * batch * queries * keys * width, count_all(call.inputs) + call.out)]


def _attention_backward(call: Call) -> list[Kernel]:
    """The scores again, and four products of gradients."""
    batch, queries, keys, width = _attention_sizes(call)
    moved = 2 * count_all(call.inputs[:3]) + 2 * call.out + count_all(call.inputs[3:])
    return [Kernel(10 * batch * queries * keys * width, moved)]


def count_all(shapes: Iterable[Shape]) -> float:
    return sum(count(shape) for shape in shapes)


def _multi_head_sizes(call: Call) -> tuple[float, float, float, float]:
    """Rows and width of the input, batch times heads, width of a head."""
    length, batch, width = (call.inputs[0] + (1, 1))[:3]
    heads = call.whole("num_heads", max(1, width // HEAD_WIDTH))
    return float(length * batch), float(width), float(batch * heads), width / heads


def _multi_head(call: Call) -> list[Kernel]:
    """Three projections in one, a copy in rows of heads, attention with its scores, a copy back, one projection."""
    rows, width, heads, head_width = _multi_head_sizes(call)
    length, size = float(call.inputs[0][0]), rows * width
    if call.whole("fused", 0):
        return [
            Kernel(0.0, 2 * size),
            _product(rows, width, 3 * width),
            Kernel(3 * size, 6 * size + 3 * width),
            Kernel(0.0, 6 * size),
            Kernel(4 * heads * length * length * head_width, 4 * size + heads * length),
            Kernel(0.0, 2 * size),
            _biased(_product(rows, width, width), width),
        ]
    scores = heads * length * length
    return [
        Kernel(0.0, 2 * size),
        _product(rows, width, 3 * width),
        Kernel(3 * size, 6 * size + 3 * width),
        Kernel(0.0, 6 * size),
        *[Kernel(size, 2 * size)] * 2,  # queries and keys are scaled
        _product(length, head_width, length, heads),
        Kernel(scores, 2 * scores),
        _product(length, length, head_width, heads),
        Kernel(0.0, 2 * size),
        _biased(_product(rows, width, width), width),
    ]


def _multi_head_backward(call: Call) -> list[Kernel]:
    rows, width, heads, head_width = _multi_head_sizes(call)
    length, size = float(call.inputs[0][0]), rows * width
    if call.whole("fused", 0):
        return [
            *_projection_backward(rows, width, width),
            Kernel(10 * heads * length * length * head_width, 8 * size + heads * length),
            *[Kernel(0.0, 2 * size)] * 6,
            *[Kernel(0.0, 4 * size)] * 3,
            *[Kernel(3 * size, 9 * size)] * 2,
            Kernel(0.0, 6 * size),
            *_projection_backward(rows, width, 3 * width),
        ]
    scores = heads * length * length
    return [
        *_projection_backward(rows, width, width),
        *[_product(length, head_width, length, heads)] * 2,
        Kernel(scores, 3 * scores),
        *[_product(length, length, head_width, heads)] * 2,
        *[Kernel(size, 2 * size)] * 2,
        *[Kernel(0.0, 2 * size)] * 2,
        *[Kernel(0.0, 4 * size)] * 3,  # each third's gradient, put in its place
        *[Kernel(3 * size, 9 * size)] * 2,
        Kernel(0.0, 6 * size),
        *_projection_backward(rows, width, 3 * width),
    ]


def _projection_backward(rows: float, inner: float, columns: float) -> list[Kernel]:
    return [
        _product(rows, columns, inner),
        _product(columns, rows, inner),
        Kernel(rows * columns, rows * columns + columns),
    ]


def _biased(kernel: Kernel, columns: float) -> Kernel:
    return kernel._replace(elements=kernel.elements + columns)


_MATMULS = ("matmul", "__matmul__", "bmm", "mm")
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")

FORWARD: dict[str, Rule] = {
    **dict.fromkeys(_MATMULS, _matmul),
    **dict.fromkeys(_CONVOLUTIONS, _conv),
    **dict.fromkeys(_TRANSPOSED, _conv_transposed),
    "linear": _linear,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head,
}
BACKWARD: dict[str, Rule] = {
    **dict.fromkeys(_MATMULS, _matmul_backward),
    **dict.fromkeys(_CONVOLUTIONS, _conv_backward),
    **dict.fromkeys(_TRANSPOSED, _conv_transposed_backward),
    "linear": _linear_backward,
    "addmm": _addmm_backward,
    "scaled_dot_product_attention": _attention_backward,
    "multi_head_attention_forward": _multi_head_backward,
}
