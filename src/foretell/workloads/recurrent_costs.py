"""Costs of recurrent networks as cuDNN runs them.

Each layer has one product for all inputs, then for each step a product with the state before and one fused kernel for
the gates. https://developer.nvidia.com/blog/optimizing-recurrent-neural-networks-cudnn-5/
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from foretell.core.workload import Operator, Shape
from foretell.workloads.product_costs import Call, Kernel, Rule

LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CELLS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
PACKED = "steps"  # attribute: the steps of a packed sequence
_STATES = {"lstm": 2, "lstm_cell": 2}


class RecurrentSizes(NamedTuple):
    """What the layers of a recurrent network multiply."""

    rows: float  # batch
    steps: int
    read: Sequence[Shape]  # weights of the inputs, one for each layer and direction
    kept: Sequence[Shape]  # weights of the states


def find_recurrent_sizes(operator: Operator) -> RecurrentSizes:
    """The sizes of a captured layer; no weights if they are unknown."""
    call = Call(inputs=operator.inputs, output=operator.output, attributes=dict(operator.attributes))
    return _find_sizes(call, _STATES.get(operator.kind, 1))


def _find_sizes(call: Call, states: int) -> RecurrentSizes:
    first = call.inputs[0]
    matrices = [shape for shape in call.inputs[1 + states :] if len(shape) == 2]
    read, kept = matrices[0::2], matrices[1::2]
    if PACKED in call.attributes:
        steps = call.whole(PACKED, 1)
        return RecurrentSizes(first[0] / steps, steps, read, kept)
    if "batch_first" not in call.attributes:  # a cell
        return RecurrentSizes(math.prod(first[:-1]), 1, read, kept)
    steps = first[call.whole("batch_first", 0) and len(first) - 2]
    return RecurrentSizes(math.prod(first[:-1]) / max(1, steps), steps, read, kept)


def _product(rows: float, weight: Shape) -> Kernel:
    columns, inner = weight
    return Kernel(2.0 * rows * columns * inner, rows * inner + columns * inner + rows * columns)


def _gates(rows: float, weight: Shape) -> Kernel:
    """Reads the gates of inputs and states and the state before, writes the new state and what the gradients need."""
    gates, hidden = weight
    return Kernel(rows * gates, rows * (3 * gates + 3 * hidden))


def _forward(states: int) -> Rule:
    def rule(call: Call) -> list[Kernel]:
        rows, steps, read, kept = _find_sizes(call, states)
        kernels = [_product(rows * steps, weight) for weight in read]
        for weight in kept:
            kernels += [_product(rows, weight), _gates(rows, weight)] * steps
        return kernels

    return rule


def _backward(states: int) -> Rule:
    """Step by step back, then the gradients of the inputs and of all weights at once."""

    def rule(call: Call) -> list[Kernel]:
        rows, steps, read, kept = _find_sizes(call, states)
        kernels: list[Kernel] = []
        for weight in kept:
            kernels += [_gates(rows, weight), _product(rows, weight[::-1])] * steps
        for place, weight in enumerate(read):
            kernels += [_product(rows * steps, weight)] * (1 + (place > 0 or call.input_gradient))
        return kernels + [_product(rows * steps, weight) for weight in kept]

    return rule


FORWARD: dict[str, Rule] = {kind: _forward(_STATES.get(kind, 1)) for kind in (*LAYERS, *CELLS)}
BACKWARD: dict[str, Rule] = {kind: _backward(_STATES.get(kind, 1)) for kind in (*LAYERS, *CELLS)}
