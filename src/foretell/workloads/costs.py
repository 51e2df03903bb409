"""What an operator computes and moves, from its shapes alone.

An operator is the sum of its kernels. A kernel reads each of its inputs and writes each of its outputs once. A
multiplication with its addition is two operations; what is no product of matrices costs one for each element of its
largest tensor, and what only copies costs none.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from foretell.core.workload import Attribute, Shape, StepPhase

INDEX_BYTES = 8  # of an int64
HEAD_WIDTH = 64  # where nobody says how many heads an attention has


class Cost(NamedTuple):
    """What an operator costs."""

    flops: float
    bytes_moved: float
    kernels: int


class _Kernel(NamedTuple):
    flops: float
    elements: float  # of the tensors' own type, read and written
    other_bytes: float = 0.0  # of masks and indices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    inputs: tuple[Shape, ...]
    output: Shape
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    input_gradient: bool = True

    @property
    def first(self) -> float:
        """Elements of the first input; of the output where no input is known."""
        return _count(self.inputs[0]) if self.inputs else self.out

    @property
    def out(self) -> float:
        """Elements of the output; of the first input where it is not known."""
        return _count(self.output) if self.output or not self.inputs else _count(self.inputs[0])

    def whole(self, name: str, default: int) -> int:
        """An attribute that is one number."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else math.prod(value)


_Rule: TypeAlias = Callable[[_Call], list[_Kernel]]


def cost(
    kind: str,
    phase: StepPhase,
    inputs: Sequence[Shape],
    output: Shape,
    attributes: Iterable[tuple[str, Attribute]] = (),
    *,
    itemsize: int = 4,
    input_gradient: bool = True,
) -> Cost:
    """An operator's cost; a backward one's from the shapes of its forward one."""
    call = _Call(inputs=tuple(inputs), output=output, attributes=dict(attributes), input_gradient=input_gradient)
    table, other = _TABLES[phase]
    kernels = table.get(kind, other)(call)
    return Cost(
        flops=sum(kernel.flops for kernel in kernels),
        bytes_moved=sum(kernel.elements * itemsize + kernel.other_bytes for kernel in kernels),
        kernels=len(kernels),
    )


def _count(shape: Shape) -> float:
    return float(math.prod(shape))


# Elementwise


def _pointwise(call: _Call) -> list[_Kernel]:
    read = [_count(shape) for shape in call.inputs]
    return [_Kernel(max([call.out, *read]), sum(read) + call.out)]


def _activation(call: _Call) -> list[_Kernel]:
    """In place, what was there is copied first where the backward phase needs it."""
    return (_copy(call) if call.whole("copied", 0) else []) + _pointwise(call)


def _pointwise_backward(call: _Call) -> list[_Kernel]:
    """The gradient and what was kept make the input's gradient."""
    return [_Kernel(call.out, 3 * call.out)]


def _copy(call: _Call) -> list[_Kernel]:
    return [_Kernel(0.0, 2 * call.out)]


def _fill(call: _Call) -> list[_Kernel]:
    return [_Kernel(0.0, call.out)]


def _nothing(_call: _Call) -> list[_Kernel]:
    return []


def _sum_to(call: _Call, shape: Shape) -> list[_Kernel]:
    """Where an input was broadcast, its gradient is summed up."""
    return [] if _count(shape) == call.out else [_Kernel(call.out, call.out + _count(shape))]


def _add_backward(call: _Call) -> list[_Kernel]:
    return [kernel for shape in call.inputs for kernel in _sum_to(call, shape)]


def _scale_backward(call: _Call) -> list[_Kernel]:
    """By one number: the gradient is scaled; by a tensor: each input's gradient is a product."""
    if len(call.inputs) < 2:  # the other is a number
        return [_Kernel(call.out, 2 * call.out)]
    first, second = call.inputs[:2]
    kernels: list[_Kernel] = []
    for mine, other in ((first, second), (second, first)):
        kernels += [_Kernel(call.out, 2 * call.out + _count(other)), *_sum_to(call, mine)]
    return kernels


def _divide_backward(call: _Call) -> list[_Kernel]:
    """The divisor's gradient is made of the negative gradient and the quotient over it."""
    if len(call.inputs) < 2:
        return _scale_backward(call)
    first, second = call.inputs[:2]
    size, divisor = call.out, _count(second)
    over = _Kernel(size, 2 * size + divisor)
    return [
        over,
        *_sum_to(call, first),
        _Kernel(size, 2 * size),
        *[over] * 2,
        _Kernel(size, 3 * size),
        *_sum_to(call, second),
    ]


def _subtract_backward(call: _Call) -> list[_Kernel]:
    negative = [_Kernel(call.out, 2 * call.out)] if len(call.inputs) > 1 else []
    return negative + _add_backward(call)


def _clamp_backward(call: _Call) -> list[_Kernel]:
    """Where it was within the bounds, and the gradient there."""
    return [_Kernel(call.out, call.out, call.out), _Kernel(call.out, 2 * call.out, call.out)]


def _masked(call: _Call) -> list[_Kernel]:
    """A random mask of a few numbers, drawn, scaled and applied."""
    mask = _count(call.inputs[1]) if len(call.inputs) > 1 else 0.0
    return [*[_Kernel(mask, 2 * mask)] * 2, _Kernel(call.out, 2 * call.out + mask)]


def _masked_backward(call: _Call) -> list[_Kernel]:
    mask = _count(call.inputs[1]) if len(call.inputs) > 1 else 0.0
    return [_Kernel(call.out, 2 * call.out + mask)]


# Products of matrices


def _product(rows: float, inner: float, columns: float, batch: float = 1.0) -> _Kernel:
    return _Kernel(2 * batch * rows * inner * columns, batch * (rows * inner + inner * columns + rows * columns))


def _linear_sizes(call: _Call) -> tuple[float, float, float, bool]:
    inner = float(call.inputs[0][-1])
    rows = call.first / inner
    columns = float(call.inputs[1][0]) if len(call.inputs) > 1 else call.out / rows
    return rows, inner, columns, len(call.inputs) > 2  # input, weight, bias


def _linear(call: _Call) -> list[_Kernel]:
    rows, inner, columns, biased = _linear_sizes(call)
    return [_biased(_product(rows, inner, columns), columns * biased)]


def _linear_backward(call: _Call) -> list[_Kernel]:
    rows, inner, columns, biased = _linear_sizes(call)
    kernels = [_product(rows, columns, inner)] if call.input_gradient else []
    kernels.append(_product(columns, rows, inner))
    if biased:
        kernels.append(_Kernel(rows * columns, rows * columns + columns))
    return kernels


def _addmm(call: _Call) -> list[_Kernel]:
    return _linear(_as_linear(call))


def _addmm_backward(call: _Call) -> list[_Kernel]:
    return _linear_backward(_as_linear(call))


def _as_linear(call: _Call) -> _Call:
    bias, first, second = call.inputs[:3]
    return replace(call, inputs=(first, second[::-1], bias))


def _matmul_sizes(call: _Call) -> tuple[float, float, float, float]:
    first, second = (call.inputs + call.inputs[:1])[:2]
    inner = float(first[-1])
    columns = float(second[-1]) if len(second) > 1 else 1.0
    if len(second) <= 2:  # one matrix for all rows
        return _count(first) / inner, inner, columns, 1.0
    batch = max(_count(first[:-2]), _count(second[:-2]))
    return float(first[-2]) if len(first) > 1 else 1.0, inner, columns, batch


def _matmul(call: _Call) -> list[_Kernel]:
    return [_product(*_matmul_sizes(call))]


def _matmul_backward(call: _Call) -> list[_Kernel]:
    rows, inner, columns, batch = _matmul_sizes(call)
    second = [_product(inner, rows, columns, batch)] if call.input_gradient else []
    return [_product(rows, columns, inner, batch), *second]


# Convolutions


def _conv_sizes(call: _Call) -> tuple[float, float, float]:
    """Operations of one pass, elements of the weight and of the bias."""
    weight = call.inputs[1]
    transposed = call.whole("transposed", 0)
    positions = call.first if transposed else call.out
    bias = _count(call.inputs[2]) if len(call.inputs) > 2 else 0.0  # input, weight, bias
    return 2 * positions * _count(weight[1:]), _count(weight), bias


def _conv(call: _Call) -> list[_Kernel]:
    flops, weight, bias = _conv_sizes(call)
    return [_Kernel(flops, call.first + weight + bias + call.out)]


def _conv_backward(call: _Call) -> list[_Kernel]:
    flops, weight, bias = _conv_sizes(call)
    one = _Kernel(flops, call.first + weight + call.out)
    sums = [_Kernel(call.out, call.out + bias)] if bias else []
    return [one] * (1 + call.input_gradient) + sums


def _conv_transposed(call: _Call) -> list[_Kernel]:
    return _conv(_as_transposed(call))


def _conv_transposed_backward(call: _Call) -> list[_Kernel]:
    return _conv_backward(_as_transposed(call))


def _as_transposed(call: _Call) -> _Call:
    return replace(call, attributes={**call.attributes, "transposed": 1})


# Norms


def _channels(call: _Call) -> float:
    return float(call.inputs[0][1]) if call.inputs and len(call.inputs[0]) > 1 else 1.0


def _batch_norm(call: _Call) -> list[_Kernel]:
    """Counts the batch; reads mean, variance, weight and bias; keeps its own mean and deviation."""
    return [_Kernel(1.0, 0.0, 2 * INDEX_BYTES), _Kernel(call.out, 2 * call.out + 6 * _channels(call))]


def _batch_norm_backward(call: _Call) -> list[_Kernel]:
    return [_Kernel(call.out, 3 * call.out + 7 * _channels(call))]


def _layer_norm_sizes(call: _Call) -> tuple[float, float]:
    width = _count(call.inputs[1]) if len(call.inputs) > 1 else float(call.inputs[0][-1])
    return width, call.first / width


def _layer_norm(call: _Call) -> list[_Kernel]:
    width, rows = _layer_norm_sizes(call)
    return [_Kernel(call.out, 2 * call.out + 2 * width + 2 * rows)]


def _layer_norm_backward(call: _Call) -> list[_Kernel]:
    width, rows = _layer_norm_sizes(call)
    return [_Kernel(call.out, 3 * call.out + 4 * width + 2 * rows)]


def _normalize(call: _Call) -> list[_Kernel]:
    """The norm along one axis, its floor, and the division."""
    norms = call.out / max(call.inputs[0][-1], 1) if call.inputs else 1.0
    return [
        _Kernel(call.out, call.out + norms),
        _Kernel(norms, 2 * norms),
        _Kernel(call.out, 2 * call.out + norms),
    ]


def _normalize_backward(call: _Call) -> list[_Kernel]:
    """Of the division, then of the norm and its floor."""
    size = call.out
    norms = size / max(call.inputs[0][-1], 1) if call.inputs else 1.0
    return [
        *[_Kernel(size, 2 * size + norms)] * 3,
        _Kernel(size, 2 * size),
        _Kernel(size, 3 * size),
        _Kernel(size, size + norms),
        _Kernel(norms, norms, norms),
        _Kernel(norms, 2 * norms, norms),
        _Kernel(size, 2 * size + norms),
        _Kernel(norms, norms, norms),
        _Kernel(0.0, 2 * size, norms),
        _Kernel(size, 2 * size + norms),
    ]


# Pooling and reductions


def _window(call: _Call) -> list[_Kernel]:
    result = _count(call.output)  # of a whole sum it is one number
    return [_Kernel(max(call.first, result), call.first + result)]


def _window_backward(call: _Call) -> list[_Kernel]:
    """The framework hands the input over again, for its shape or its values; not where the mean of all is taken."""
    if call.output and _count(call.output) == _count(call.inputs[0][:2]):
        return _spread(call)
    return [_Kernel(max(call.first, call.out), 2 * call.first + call.out)]


def _max_pool(call: _Call) -> list[_Kernel]:
    return [_Kernel(max(call.first, call.out), call.first + call.out, INDEX_BYTES * call.out)]


def _max_pool_backward(call: _Call) -> list[_Kernel]:
    return [_Kernel(max(call.first, call.out), 2 * call.first + call.out, INDEX_BYTES * call.out)]


def _spread(call: _Call) -> list[_Kernel]:
    """A mean's gradient, handed to all of its inputs and divided."""
    return [_Kernel(call.first, call.out + call.first)]


def _dropout(call: _Call) -> list[_Kernel]:
    return [_Kernel(call.out, 2 * call.out, call.out)]


def _cross_entropy(call: _Call) -> list[_Kernel]:
    scores = call.first
    targets = scores / _channels(call)
    return [
        _Kernel(scores, 2 * scores),
        _Kernel(scores, scores + 2, INDEX_BYTES * targets),
    ]


def _cross_entropy_backward(call: _Call) -> list[_Kernel]:
    scores = call.first
    targets = scores / _channels(call)
    return [
        _Kernel(scores, 2 + 2 * scores, INDEX_BYTES * targets),
        _Kernel(scores, 3 * scores),
    ]


def _mse_loss(call: _Call) -> list[_Kernel]:
    return [_Kernel(call.first, 2 * call.first + 1)]


def _mse_loss_backward(call: _Call) -> list[_Kernel]:
    return [_Kernel(call.first, 3 * call.first + 1)]


# Copies


def _joined(call: _Call) -> list[_Kernel]:
    return [_Kernel(0.0, sum(_count(shape) for shape in call.inputs) + call.out)]


def _moved_back(call: _Call) -> list[_Kernel]:
    return [_Kernel(0.0, call.first + call.out)]


def _picked(call: _Call) -> list[_Kernel]:
    """Only what is asked for is read."""
    return [_Kernel(0.0, 2 * call.out, INDEX_BYTES * _count_all(call.inputs[1:]))]


def _index_backward(call: _Call) -> list[_Kernel]:
    """Zeros, and the gradients added where they came from."""
    indices = INDEX_BYTES * _count_all(call.inputs[1:])
    return [_Kernel(0.0, call.first), _Kernel(call.out, 3 * call.out, indices)]


def _embedding(call: _Call) -> list[_Kernel]:
    return [_Kernel(0.0, 2 * call.out, INDEX_BYTES * call.first)]


def _embedding_backward(call: _Call) -> list[_Kernel]:
    table = _count(call.inputs[1]) if len(call.inputs) > 1 else call.out
    return [_Kernel(max(table, call.out), table + call.out, INDEX_BYTES * call.first)]


# Attention


def _attention_sizes(call: _Call) -> tuple[float, float, float, float]:
    """Batch times heads, queries, keys and width of a head."""
    query, key = (call.inputs + call.inputs[:1])[:2]
    return _count(query[:-2]), float(query[-2]), float(key[-2]), float(query[-1])


def _attention(call: _Call) -> list[_Kernel]:
    """Two products in one kernel, which keeps no scores."""
    batch, queries, keys, width = _attention_sizes(call)
    return [_Kernel(4 * batch * queries * keys * width, _count_all(call.inputs) + call.out)]


def _attention_backward(call: _Call) -> list[_Kernel]:
    """The scores again, and four products of gradients."""
    batch, queries, keys, width = _attention_sizes(call)
    moved = 2 * _count_all(call.inputs[:3]) + 2 * call.out + _count_all(call.inputs[3:])
    return [_Kernel(10 * batch * queries * keys * width, moved)]


def _count_all(shapes: Iterable[Shape]) -> float:
    return sum(_count(shape) for shape in shapes)


def _multi_head_sizes(call: _Call) -> tuple[float, float, float, float]:
    """Rows and width of the input, batch times heads, width of a head."""
    length, batch, width = (call.inputs[0] + (1, 1))[:3]
    heads = call.whole("num_heads", max(1, width // HEAD_WIDTH))
    return float(length * batch), float(width), float(batch * heads), width / heads


def _multi_head(call: _Call) -> list[_Kernel]:
    """Three projections in one, a copy in rows of heads, attention with its scores, a copy back, one projection."""
    rows, width, heads, head_width = _multi_head_sizes(call)
    length, size = float(call.inputs[0][0]), rows * width
    scores = heads * length * length
    return [
        _Kernel(0.0, 2 * size),
        _product(rows, width, 3 * width),
        _Kernel(3 * size, 6 * size + 3 * width),
        _Kernel(0.0, 6 * size),
        *[_Kernel(size, 2 * size)] * 2,  # queries and keys are scaled
        _product(length, head_width, length, heads),
        _Kernel(scores, 2 * scores),
        _product(length, length, head_width, heads),
        _Kernel(0.0, 2 * size),
        _biased(_product(rows, width, width), width),
    ]


def _multi_head_backward(call: _Call) -> list[_Kernel]:
    rows, width, heads, head_width = _multi_head_sizes(call)
    length, size = float(call.inputs[0][0]), rows * width
    scores = heads * length * length
    return [
        *_projection_backward(rows, width, width),
        *[_product(length, head_width, length, heads)] * 2,
        _Kernel(scores, 3 * scores),
        *[_product(length, length, head_width, heads)] * 2,
        *[_Kernel(size, 2 * size)] * 2,
        *[_Kernel(0.0, 2 * size)] * 2,
        *[_Kernel(0.0, 4 * size)] * 3,  # each third's gradient, put in its place
        *[_Kernel(3 * size, 9 * size)] * 2,
        _Kernel(0.0, 6 * size),
        *_projection_backward(rows, width, 3 * width),
    ]


def _projection_backward(rows: float, inner: float, columns: float) -> list[_Kernel]:
    return [
        _product(rows, columns, inner),
        _product(columns, rows, inner),
        _Kernel(rows * columns, rows * columns + columns),
    ]


def _biased(kernel: _Kernel, columns: float) -> _Kernel:
    return kernel._replace(elements=kernel.elements + columns)


# Updates


def _update(call: _Call) -> list[_Kernel]:
    """Reads all of its tensors, writes the first ones: as many as are updated together."""
    sizes = [_count(shape) for shape in call.inputs] or [call.out]
    written = sum(sizes[: call.whole("tensors", 1)])
    return [_Kernel(written, sum(sizes) + written)]


def _fused(states: int) -> _Rule:
    """One kernel for parameters, gradients and so many states; all but the gradients are written."""

    def rule(call: _Call) -> list[_Kernel]:
        size = sum(_count(shape) for shape in call.inputs[: call.whole("tensors", 1)])
        return [_Kernel(size, (2 + states + 1 + states) * size)]

    return rule


ACTIVATIONS = [
    "relu",
    "relu_",
    "silu",
    "gelu",
    "hardswish",
    "sigmoid",
    "hardsigmoid",
    "hardtanh",
    "relu6",
    "tanh",
    "exp",
    "elu",
    "leaky_relu",
    "softplus",
    "mish",
    "log",
    "sqrt",
    "rsqrt",
]
_SCALED = ["__mul__", "__rmul__", "mul", "__imul__", "mul_", "__truediv__", "div", "__itruediv__", "div_", "clamp"]
_ADDED = ["__add__", "__radd__", "__iadd__", "add", "__sub__", "sub", "__isub__", "__rsub__", "rsub"]
_COPIED = ["reshape", "clone", "contiguous", "aten::clone", "flatten", "copy_", "to", "float", "half", "bfloat16"]
_PRODUCTS = ["matmul", "__matmul__", "bmm", "mm"]
_CONVOLUTIONS = ["conv1d", "conv2d", "conv3d"]
_TRANSPOSED = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
_NORMS = ["batch_norm", "instance_norm"]
_WINDOWS = ["avg_pool2d", "adaptive_avg_pool2d", "mean", "sum"]
_FILLED = ["zero_", "zeros", "zeros_like", "ones", "ones_like", "full", "new_zeros", "new_ones", "new_full"]
_INDEXED = ["index", "aten::index", "__getitem__"]

_FORWARD: dict[str, _Rule] = {
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(_COPIED, _copy),
    **dict.fromkeys(_PRODUCTS, _matmul),
    **dict.fromkeys(_CONVOLUTIONS, _conv),
    **dict.fromkeys(_TRANSPOSED, _conv_transposed),
    **dict.fromkeys(_NORMS, _batch_norm),
    **dict.fromkeys(_WINDOWS, _window),
    **dict.fromkeys(_INDEXED, _picked),
    "linear": _linear,
    "addmm": _addmm,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "normalize": _normalize,
    "max_pool2d": _max_pool,
    "softmax": _pointwise,
    "cross_entropy": _cross_entropy,
    "mse_loss": _mse_loss,
    "dropout": _dropout,
    "bernoulli_": _masked,
    **dict.fromkeys(_FILLED, _fill),
    "cat": _joined,
    "stack": _joined,
    "pad": _moved_back,
    "roll": _moved_back,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head,
}
_BACKWARD: dict[str, _Rule] = {
    **dict.fromkeys(ACTIVATIONS, _pointwise_backward),
    **dict.fromkeys(_SCALED, _scale_backward),
    **dict.fromkeys(_ADDED, _add_backward),
    **dict.fromkeys(_COPIED, _nothing),
    **dict.fromkeys(_PRODUCTS, _matmul_backward),
    **dict.fromkeys(_CONVOLUTIONS, _conv_backward),
    **dict.fromkeys(_TRANSPOSED, _conv_transposed_backward),
    **dict.fromkeys(_NORMS, _batch_norm_backward),
    **dict.fromkeys(_WINDOWS, _window_backward),
    **dict.fromkeys(_INDEXED, _index_backward),
    "mean": _spread,
    "sum": _nothing,
    "linear": _linear_backward,
    "addmm": _addmm_backward,
    "embedding": _embedding_backward,
    "__truediv__": _divide_backward,
    "div": _divide_backward,
    "__sub__": _subtract_backward,
    "sub": _subtract_backward,
    "clamp": _clamp_backward,
    "layer_norm": _layer_norm_backward,
    "normalize": _normalize_backward,
    "max_pool2d": _max_pool_backward,
    "softmax": _pointwise_backward,
    "cross_entropy": _cross_entropy_backward,
    "mse_loss": _mse_loss_backward,
    "dropout": _dropout,
    "bernoulli_": _masked_backward,
    "zero_": _fill,
    "new_zeros": _nothing,
    "cat": _nothing,
    "pad": _moved_back,
    "roll": _moved_back,
    "view": _moved_back,
    "chunk": _moved_back,
    "scaled_dot_product_attention": _attention_backward,
    "multi_head_attention_forward": _multi_head_backward,
}
_UPDATE: dict[str, _Rule] = {
    "_fused_sgd_": _fused(1),
    "_fused_adam_": _fused(2),
    "_fused_adamw_": _fused(2),
}
_TABLES: dict[StepPhase, tuple[dict[str, _Rule], _Rule]] = {
    StepPhase.FORWARD: (_FORWARD, _pointwise),
    StepPhase.BACKWARD: (_BACKWARD, _pointwise_backward),
    StepPhase.UPDATE: (_UPDATE, _update),
}
