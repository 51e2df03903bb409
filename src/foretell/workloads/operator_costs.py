"""Names of operators, and what each computes and moves, from its shapes alone.

The cost of an operator is the sum of its kernels. A kernel reads each of its inputs and writes each of its outputs
once. Matrix products are in :mod:`product_costs`; other kernels cost one operation for each element of their largest
tensor, and copies cost none.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foretell.core.workload import Attribute, Shape, StepPhase
from foretell.workloads import product_costs, recurrent_costs
from foretell.workloads.product_costs import INDEX_BYTES, Call, Kernel, Rule, count, count_all

_NAMES = {
    "add": "__add__",
    "__radd__": "__add__",
    "add_": "__iadd__",
    "sub": "__sub__",
    "subtract": "__sub__",
    "sub_": "__isub__",
    "mul": "__mul__",
    "multiply": "__mul__",
    "__rmul__": "__mul__",
    "mul_": "__imul__",
    "div": "__truediv__",
    "true_divide": "__truediv__",
    "div_": "__itruediv__",
    "pow": "__pow__",
    "neg": "__neg__",
    "__matmul__": "matmul",
    "aten::clone": "clone",
    "contiguous": "clone",
    "aten::index": "index",
    "__getitem__": "index",
    "relu_": "relu",
    "relu6": "hardtanh",
    "silu_": "silu",
    "hardswish_": "hardswish",
    "hardtanh_": "hardtanh",
    "hardsigmoid_": "hardsigmoid",
    "sigmoid_": "sigmoid",
    "tanh_": "tanh",
    "dropout_": "dropout",
    "concat": "cat",
    "concatenate": "cat",
    "type": "to",
    "float": "to",
    "half": "to",
    "bfloat16": "to",
    "type_as": "to",
}


def normalize_name(name: str) -> str:
    """The one name of an operator, for all its spellings in code and in recorded traces (forward and backward)."""
    return _NAMES.get(name, name)


class Cost(NamedTuple):
    """What an operator costs."""

    flops: float
    bytes_moved: float
    kernels: int


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
    """The cost of an operator. A backward operator is given the shapes of its forward one."""
    call = Call(inputs=tuple(inputs), output=output, attributes=dict(attributes), input_gradient=input_gradient)
    table, other = _TABLES[phase]
    kernels = table.get(kind, other)(call)
    return Cost(
        flops=sum(kernel.flops for kernel in kernels),
        bytes_moved=sum(kernel.elements * itemsize + kernel.other_bytes for kernel in kernels),
        kernels=len(kernels),
    )


# Elementwise


def _pointwise(call: Call) -> list[Kernel]:
    read = [count(shape) for shape in call.inputs]
    return [Kernel(max([call.out, *read]), sum(read) + call.out)]


def _activation(call: Call) -> list[Kernel]:
    """An in-place operator first copies the old values if the backward phase needs them."""
    return (_copy(call) if call.whole("copied", 0) else []) + _pointwise(call)


def _pointwise_backward(call: Call) -> list[Kernel]:
    """Reads the gradient and a saved tensor, writes the gradient of the input."""
    return [Kernel(call.out, 3 * call.out)]


def _copy(call: Call) -> list[Kernel]:
    return [Kernel(0.0, 2 * call.out)]


def _fill(call: Call) -> list[Kernel]:
    return [Kernel(0.0, call.out)]


def _nothing(_call: Call) -> list[Kernel]:
    return []


def _sum_to(call: Call, shape: Shape) -> list[Kernel]:
    """The gradient of a broadcast input is summed."""
    return [] if count(shape) == call.out else [Kernel(call.out, call.out + count(shape))]


def _add_backward(call: Call) -> list[Kernel]:
    return [kernel for shape in call.inputs for kernel in _sum_to(call, shape)]


def _scale_backward(call: Call) -> list[Kernel]:
    """Scaled by a number, one product; scaled by a tensor, a product for the gradient of each input."""
    if len(call.inputs) < 2:  # the other factor is a number
        return [Kernel(call.out, 2 * call.out)]
    first, second = call.inputs[:2]
    kernels: list[Kernel] = []
    for mine, other in ((first, second), (second, first)):
        kernels += [Kernel(call.out, 2 * call.out + count(other)), *_sum_to(call, mine)]
    return kernels


def _divide_backward(call: Call) -> list[Kernel]:
    """The gradient of the divisor needs the negated gradient and two more divisions."""
    if len(call.inputs) < 2:
        return _scale_backward(call)
    first, second = call.inputs[:2]
    size, divisor = call.out, count(second)
    over = Kernel(size, 2 * size + divisor)
    return [
        over,
        *_sum_to(call, first),
        Kernel(size, 2 * size),
        *[over] * 2,
        Kernel(size, 3 * size),
        *_sum_to(call, second),
    ]


def _subtract_backward(call: Call) -> list[Kernel]:
    negative = [Kernel(call.out, 2 * call.out)] if len(call.inputs) > 1 else []
    return negative + _add_backward(call)


def _clamp_backward(call: Call) -> list[Kernel]:
    """A mask of the values within the bounds, and the gradient there."""
    return [Kernel(call.out, call.out, call.out), Kernel(call.out, 2 * call.out, call.out)]


def _random_mask(call: Call) -> list[Kernel]:
    """A small random mask is drawn, scaled and applied."""
    mask = count(call.inputs[1]) if len(call.inputs) > 1 else 0.0
    return [*[Kernel(mask, 2 * mask)] * 2, Kernel(call.out, 2 * call.out + mask)]


def _random_mask_backward(call: Call) -> list[Kernel]:
    mask = count(call.inputs[1]) if len(call.inputs) > 1 else 0.0
    return [Kernel(call.out, 2 * call.out + mask)]


# Norms


def _channels(call: Call) -> float:
    return float(call.inputs[0][1]) if call.inputs and len(call.inputs[0]) > 1 else 1.0


def _batch_norm(call: Call) -> list[Kernel]:
    """Increments the batch counter; reads mean, variance, weight and bias; saves its own mean and deviation."""
    return [Kernel(1.0, 0.0, 2 * INDEX_BYTES), Kernel(call.out, 2 * call.out + 6 * _channels(call))]


def _batch_norm_backward(call: Call) -> list[Kernel]:
    return [Kernel(call.out, 3 * call.out + 7 * _channels(call))]


def _layer_norm_sizes(call: Call) -> tuple[float, float]:
    width = count(call.inputs[1]) if len(call.inputs) > 1 else float(call.inputs[0][-1])
    return width, call.first / width


def _layer_norm(call: Call) -> list[Kernel]:
    width, rows = _layer_norm_sizes(call)
    return [Kernel(call.out, 2 * call.out + 2 * width + 2 * rows)]


def _layer_norm_backward(call: Call) -> list[Kernel]:
    width, rows = _layer_norm_sizes(call)
    return [Kernel(call.out, 3 * call.out + 4 * width + 2 * rows)]


def _normalize(call: Call) -> list[Kernel]:
    """The norm along one axis, its lower limit, and the division."""
    norms = call.out / max(call.inputs[0][-1], 1) if call.inputs else 1.0
    return [
        Kernel(call.out, call.out + norms),
        Kernel(norms, 2 * norms),
        Kernel(call.out, 2 * call.out + norms),
    ]


def _normalize_backward(call: Call) -> list[Kernel]:
    """The gradients of the division, then of the norm and its lower limit."""
    size = call.out
    norms = size / max(call.inputs[0][-1], 1) if call.inputs else 1.0
    return [
        *[Kernel(size, 2 * size + norms)] * 3,
        Kernel(size, 2 * size),
        Kernel(size, 3 * size),
        Kernel(size, size + norms),
        Kernel(norms, norms, norms),
        Kernel(norms, 2 * norms, norms),
        Kernel(size, 2 * size + norms),
        Kernel(norms, norms, norms),
        Kernel(0.0, 2 * size, norms),
        Kernel(size, 2 * size + norms),
    ]


# Pooling and reductions


def _pool(call: Call) -> list[Kernel]:
    result = count(call.output)  # one number for a sum over all elements
    return [Kernel(max(call.first, result), call.first + result)]


def _pool_backward(call: Call) -> list[Kernel]:
    """PyTorch reads the input again, for its shape or its values, except for a global mean."""
    if call.output and count(call.output) == count(call.inputs[0][:2]):
        return _mean_backward(call)
    return [Kernel(max(call.first, call.out), 2 * call.first + call.out)]


def _max_pool(call: Call) -> list[Kernel]:
    return [Kernel(max(call.first, call.out), call.first + call.out, INDEX_BYTES * call.out)]


def _max_pool_backward(call: Call) -> list[Kernel]:
    return [Kernel(max(call.first, call.out), 2 * call.first + call.out, INDEX_BYTES * call.out)]


def _mean_backward(call: Call) -> list[Kernel]:
    """The gradient of a mean, divided and copied to all inputs."""
    return [Kernel(call.first, call.out + call.first)]


def _dropout(call: Call) -> list[Kernel]:
    return [Kernel(call.out, 2 * call.out, call.out)]


def _cross_entropy(call: Call) -> list[Kernel]:
    scores = call.first
    targets = scores / _channels(call)
    return [
        Kernel(scores, 2 * scores),
        Kernel(scores, scores + 2, INDEX_BYTES * targets),
    ]


def _cross_entropy_backward(call: Call) -> list[Kernel]:
    scores = call.first
    targets = scores / _channels(call)
    return [
        Kernel(scores, 2 + 2 * scores, INDEX_BYTES * targets),
        Kernel(scores, 3 * scores),
    ]


def _mse_loss(call: Call) -> list[Kernel]:
    return [Kernel(call.first, 2 * call.first + 1)]


def _mse_loss_backward(call: Call) -> list[Kernel]:
    return [Kernel(call.first, 3 * call.first + 1)]


# Copies


def _concatenate(call: Call) -> list[Kernel]:
    return [Kernel(0.0, sum(count(shape) for shape in call.inputs) + call.out)]


def _move(call: Call) -> list[Kernel]:
    return [Kernel(0.0, call.first + call.out)]


def _select(call: Call) -> list[Kernel]:
    """Only the selected elements are read."""
    return [Kernel(0.0, 2 * call.out, INDEX_BYTES * count_all(call.inputs[1:]))]


def _index_backward(call: Call) -> list[Kernel]:
    """A tensor of zeros, to which the gradients are added."""
    indices = INDEX_BYTES * count_all(call.inputs[1:])
    return [Kernel(0.0, call.first), Kernel(call.out, 3 * call.out, indices)]


def _embedding(call: Call) -> list[Kernel]:
    return [Kernel(0.0, 2 * call.out, INDEX_BYTES * call.first)]


def _embedding_backward(call: Call) -> list[Kernel]:
    table = count(call.inputs[1]) if len(call.inputs) > 1 else call.out
    return [Kernel(max(table, call.out), table + call.out, INDEX_BYTES * call.first)]


# Updates


def _update(call: Call) -> list[Kernel]:
    """Reads all tensors and writes the first ones, as many as are updated together."""
    sizes = [count(shape) for shape in call.inputs] or [call.out]
    written = sum(sizes[: call.whole("tensors", 1)])
    return [Kernel(written, sum(sizes) + written)]


def _fused(states: int) -> Rule:
    """One kernel for parameters, gradients and optimizer states; all but the gradients are written."""

    def rule(call: Call) -> list[Kernel]:
        size = sum(count(shape) for shape in call.inputs[: call.whole("tensors", 1)])
        return [Kernel(size, (2 + states + 1 + states) * size)]

    return rule


ACTIVATIONS = (
    "relu", "relu_", "silu", "gelu", "hardswish", "sigmoid", "hardsigmoid", "hardtanh", "relu6", "tanh", "exp", "elu",
    "leaky_relu", "softplus", "mish", "log", "sqrt", "rsqrt",
)  # fmt: skip
_SCALED = ["__mul__", "__rmul__", "mul", "__imul__", "mul_", "__truediv__", "div", "__itruediv__", "div_", "clamp"]
_ADDED = ["__add__", "__radd__", "__iadd__", "add", "__sub__", "sub", "__isub__", "__rsub__", "rsub"]
_COPIED = ["reshape", "clone", "contiguous", "aten::clone", "flatten", "copy_", "to", "float", "half", "bfloat16"]
_NORMS = ["batch_norm", "instance_norm"]
_WINDOWS = ["avg_pool2d", "adaptive_avg_pool2d", "mean", "sum"]
_FILLED = ["zero_", "zeros", "zeros_like", "ones", "ones_like", "full", "new_zeros", "new_ones", "new_full"]
_INDEXED = ["index", "aten::index", "__getitem__"]

_FORWARD: dict[str, Rule] = {
    **product_costs.FORWARD,
    **recurrent_costs.FORWARD,
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(_COPIED, _copy),
    **dict.fromkeys(_NORMS, _batch_norm),
    **dict.fromkeys(_WINDOWS, _pool),
    **dict.fromkeys(_INDEXED, _select),
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "normalize": _normalize,
    "max_pool2d": _max_pool,
    "softmax": _pointwise,
    "cross_entropy": _cross_entropy,
    "mse_loss": _mse_loss,
    "dropout": _dropout,
    "bernoulli_": _random_mask,
    **dict.fromkeys(_FILLED, _fill),
    "cat": _concatenate,
    "stack": _concatenate,
    "pad": _move,
    "roll": _move,
}
_BACKWARD: dict[str, Rule] = {
    **product_costs.BACKWARD,
    **recurrent_costs.BACKWARD,
    **dict.fromkeys(ACTIVATIONS, _pointwise_backward),
    **dict.fromkeys(_SCALED, _scale_backward),
    **dict.fromkeys(_ADDED, _add_backward),
    **dict.fromkeys(_COPIED, _nothing),
    **dict.fromkeys(_NORMS, _batch_norm_backward),
    **dict.fromkeys(_WINDOWS, _pool_backward),
    **dict.fromkeys(_INDEXED, _index_backward),
    "mean": _mean_backward,
    "sum": _nothing,
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
    "bernoulli_": _random_mask_backward,
    "zero_": _fill,
    "new_zeros": _nothing,
    "cat": _nothing,
    "pad": _move,
    "roll": _move,
    "view": _move,
    "chunk": _move,
}
_UPDATE: dict[str, Rule] = {
    "_fused_sgd_": _fused(1),
    "_fused_adam_": _fused(2),
    "_fused_adamw_": _fused(2),
}
_TABLES: dict[StepPhase, tuple[dict[str, Rule], Rule]] = {
    StepPhase.FORWARD: (_FORWARD, _pointwise),
    StepPhase.BACKWARD: (_BACKWARD, _pointwise_backward),
    StepPhase.UPDATE: (_UPDATE, _update),
}
