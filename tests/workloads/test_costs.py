"""An operator costs the same, captured from code or computed from its shapes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from foretell.core.workload import Operator, StepPhase
from foretell.workloads.capture import capture
from foretell.workloads.operator_costs import cost
from foretell.workloads.step_options import StepOptions, parse_input


class Calls(nn.Module):
    """A function between parameters and a loss, so that all of its inputs get gradients."""

    def __init__(self, call: Callable[..., torch.Tensor], part: nn.Module | None) -> None:
        super().__init__()
        self.call = call
        self.part = part
        self.weight = nn.Parameter(torch.empty(1, device="meta"))

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        scaled = [each * self.weight for each in given]
        return self.call(*scaled) if self.part is None else self.part(*scaled)


def read(call: Callable[..., Any] | nn.Module, *inputs: str, loss: str = "mse") -> list[Operator]:
    part = call if isinstance(call, nn.Module) else None
    model = Calls(functional.relu if part is not None else call, part)
    workload = capture(model, [parse_input(text) for text in inputs], options=StepOptions(loss=loss))
    return [each for each in workload.operators if (1,) not in each.inputs]


class Heads(nn.MultiheadAttention):
    def __init__(self, *, weights: bool) -> None:
        super().__init__(16, 4, batch_first=True)
        self.weights = weights

    def forward(self, given: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(given, given, given, need_weights=self.weights, average_attn_weights=False)[0]


ACTIVATIONS = ["relu", "silu", "gelu", "hardswish", "sigmoid", "hardsigmoid", "hardtanh"]
ACTIVATIONS += ["tanh", "relu6", "elu", "leaky_relu", "softplus"]
IMAGES, ROWS = "4,8,16,16", "4,8,16"
CASES: dict[str, tuple[Any, ...]] = {
    "conv2d": (nn.Conv2d(8, 16, 3, padding=1), IMAGES),
    "strided": (nn.Conv2d(8, 16, 3, stride=2, bias=False), IMAGES),
    "grouped": (nn.Conv2d(8, 16, 3, groups=4), IMAGES),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8, bias=False), IMAGES),
    "dilated": (nn.Conv2d(8, 16, 3, dilation=2), IMAGES),
    "transposed": (nn.ConvTranspose2d(8, 4, 2, stride=2), IMAGES),
    "conv1d": (nn.Conv1d(8, 4, 3), ROWS),
    "batch_norm": (nn.BatchNorm2d(8), IMAGES),
    "layer_norm": (nn.LayerNorm(16), IMAGES),
    "linear": (nn.Linear(16, 32), ROWS),
    "linear without bias": (nn.Linear(16, 32, bias=False), "4,16"),
    "matmul": (torch.matmul, "4,16", "16,5"),
    "bmm": (torch.bmm, "3,4,16", "3,16,5"),
    "attention scores": (torch.matmul, "3,2,4,16", "3,2,16,5"),
    "attention": (lambda x, y: functional.scaled_dot_product_attention(x, y, y), "2,4,16,8", "2,4,24,8"),
    "add": (torch.add, ROWS, ROWS),
    "add, broadcast": (torch.add, ROWS, "1,16"),
    "subtract": (torch.sub, ROWS, ROWS),
    "multiply": (torch.mul, ROWS, ROWS),
    "multiply, broadcast": (torch.mul, IMAGES, "4,8,1,1"),
    "scale": (lambda x: 3 * x, ROWS),
    "divide": (torch.div, ROWS, ROWS),
    "divide by a number": (lambda x: x / 3, ROWS),
    "max_pool2d": (nn.MaxPool2d(3, 2, 1), IMAGES),
    "avg_pool2d": (nn.AvgPool2d(2), IMAGES),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(7), IMAGES),
    "adaptive_avg_pool2d to one": (nn.AdaptiveAvgPool2d(1), IMAGES),
    "softmax": (nn.Softmax(-1), ROWS),
    "mean": (lambda x: x.mean([2, 3]), IMAGES),
    "cat": (lambda x, y: torch.cat([x, y], 1), "4,8,16", "4,3,16"),
    "pad": (lambda x: functional.pad(x, (1, 1, 2, 2)), IMAGES),
    "roll": (lambda x: torch.roll(x, (1, 1), (1, 2)), IMAGES),
    "clone": (lambda x: x.transpose(1, 2).contiguous(), ROWS),
    "reshape": (lambda x: x.transpose(1, 2).reshape(4, -1), ROWS),
    "dropout": (nn.Dropout(0.1), ROWS),
    "normalize": (lambda x: functional.normalize(x, dim=-1), ROWS),
    "clamp": (lambda x: torch.clamp(x, max=3.0), ROWS),
    "stochastic depth": (lambda x: x * torch.empty(4, 1, 1).bernoulli_(0.5).div_(0.5), ROWS),
    **{kind: (getattr(functional, kind), IMAGES) for kind in ACTIVATIONS},
    "exp": (torch.exp, ROWS),
    "silu in place": (nn.SiLU(inplace=True), IMAGES),
    "relu in place": (nn.ReLU(inplace=True), IMAGES),
}


@pytest.mark.parametrize("name", CASES)
def test_costs_are_those_of_the_code(name: str) -> None:
    call, *inputs = CASES[name]
    operators = read(call, *inputs)
    assert {each.phase for each in operators} >= {StepPhase.FORWARD, StepPhase.BACKWARD}
    for each in operators:
        computed = cost(
            each.kind, each.phase, each.inputs, each.output, each.attributes, input_gradient=each.input_gradient
        )
        assert computed.bytes_moved == pytest.approx(each.bytes_moved, rel=0.01, abs=16), each
        assert computed.flops == pytest.approx(each.flops, rel=0.01, abs=16), each
        assert computed.kernels == each.kernels, each


def test_costs_of_losses_and_multi_head_attention_are_those_of_the_code() -> None:
    operators = read(lambda x: x, "32,10", loss="cross_entropy") + read(Heads(weights=False), "2,32,16")
    checked = [each for each in operators if each.kind in ("cross_entropy", "mse_loss", "multi_head_attention_forward")]
    assert len(checked) == 6
    for each in checked:
        computed = cost(each.kind, each.phase, each.inputs, each.output, each.attributes)
        assert computed == pytest.approx((each.flops, each.bytes_moved, each.kernels), rel=0.001), each


def test_a_convolution_counts_multiplication_and_addition_as_two() -> None:
    inputs, output = ((2, 3, 8, 8), (5, 3, 3, 3)), (2, 5, 6, 6)
    forward = cost("conv2d", StepPhase.FORWARD, inputs, output)
    assert forward.flops == 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)
    assert forward.bytes_moved == 4 * (2 * 3 * 8 * 8 + 5 * 3 * 3 * 3 + 2 * 5 * 6 * 6)
    backward = cost("conv2d", StepPhase.BACKWARD, inputs, output)
    first = cost("conv2d", StepPhase.BACKWARD, inputs, output, input_gradient=False)
    assert (backward.flops, first.flops) == (2 * forward.flops, forward.flops)


def test_smaller_elements_move_fewer_bytes_for_the_same_work() -> None:
    whole = cost("linear", StepPhase.FORWARD, ((8, 16), (4, 16), (4,)), (8, 4))
    half = cost("linear", StepPhase.FORWARD, ((8, 16), (4, 16), (4,)), (8, 4), itemsize=2)
    assert (half.flops, half.bytes_moved) == (whole.flops, whole.bytes_moved / 2)


def test_an_unknown_operator_costs_what_it_reads_and_writes() -> None:
    forward = cost("frobnicate", StepPhase.FORWARD, ((4, 5), (5,)), (4, 5))
    assert forward == (20, 4 * (20 + 5 + 20), 1)


def test_a_fused_update_touches_parameters_gradients_and_states_once() -> None:
    shapes = ((10,), (3, 4))
    assert cost("_fused_adamw_", StepPhase.UPDATE, shapes * 4, (), (("tensors", 2),)).bytes_moved == 4 * 22 * 7
    assert cost("_foreach_add_", StepPhase.UPDATE, shapes * 2, (), (("tensors", 2),)).bytes_moved == 4 * 22 * 3
