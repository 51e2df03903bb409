"""Operators whose cost is not known are counted and named; those that PyTorch knows are not among them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from foretell.core.workload import StepPhase, Workload
from foretell.workloads.capture import capture
from foretell.workloads.operator_records import Record
from foretell.workloads.step_options import StepOptions, parse_input
from foretell.workloads.workload_warnings import find_warnings


@torch.library.custom_op("foretell_tests::smooth", mutates_args=())
def smooth(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@smooth.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("foretell_tests::smooth_backward", mutates_args=())
def smooth_backward(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@smooth_backward.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


smooth.register_autograd(lambda _context, gradient: smooth_backward(gradient))


class Own(torch.autograd.Function):
    """A product whose backward phase is code of the model."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = context.saved_tensors
        return gradients[0] @ weight.T, x.T @ gradients[0]


class Calls(nn.Module):
    def __init__(self, call: Callable[..., torch.Tensor], *, weight: bool = False) -> None:
        super().__init__()
        self.first, self.call = nn.Linear(16, 16), call
        self.weight = nn.Parameter(torch.randn(16, 16)) if weight else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.call(x) if self.weight is None else self.call(x, self.weight)


def read(model: nn.Module, text: str = "4,16", **options: Any) -> Workload:
    return capture(model, [parse_input(text)], options=StepOptions(loss="sum", **options))


def test_a_custom_operator_is_counted_in_both_phases_and_named() -> None:
    workload = read(Calls(smooth))
    assert workload.unknown == {"foretell_tests::smooth": 2}
    unknown = [each for each in workload.operators if each.unknown]
    assert [each.phase for each in unknown] == [StepPhase.FORWARD, StepPhase.BACKWARD]
    assert (unknown[0].flops, unknown[0].bytes_moved) == (64.0, 512.0)  # one pass over its tensors
    (warning,) = find_warnings(workload)
    assert (warning.code, warning.data["operators"]) == ("unknown-costs", 2)
    assert "foretell_tests::smooth (2)" in warning.text


def test_a_formula_of_the_user_makes_an_operator_known() -> None:
    from torch.utils.flop_counter import flop_registry, register_flop_formula

    from foretell.workloads import kernel_costs

    packet = torch.ops.foretell_tests.smooth
    register_flop_formula(packet)(lambda shape, *_others, **_named: 100 * shape[0])
    kernel_costs._rules.clear()
    try:
        workload = read(Calls(smooth), mode="inference")
        assert workload.unknown == {}
        assert next(each.flops for each in workload.operators if "smooth" in each.kind) == 400
    finally:
        del flop_registry[packet]
        kernel_costs._rules.clear()


def test_a_function_with_its_own_backward_phase_has_its_costs_and_its_name() -> None:
    workload = read(Calls(Own.apply, weight=True))
    assert workload.unknown == {}
    backward = [each for each in workload.operators if each.phase is StepPhase.BACKWARD]
    own = next(each for each in backward if each.kind == "OwnBackward")
    assert own.product_flops == 2 * 2 * 4 * 16 * 16
    relu = next(each for each in backward if each.kind == "relu")
    assert relu.product_flops == 0.0  # the function's products are not those of the operator before it


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: torch.fft.rfft(x).abs(), "4,16"),
        (lambda x: x.sort(-1).values, "4,16"),
        (lambda x: x.topk(3, -1).values, "4,16"),
        (lambda x: x.cumsum(-1), "4,16"),
        (lambda x: torch.zeros_like(x).scatter_add(0, torch.zeros(4, 16, dtype=torch.int64), x), "4,16"),
        (lambda x: x.gather(1, torch.zeros(4, 2, dtype=torch.int64)), "4,16"),
        (lambda x: torch.linalg.inv(x[:, :4]), "4,16"),
        (torch.cdist, "4,16"),
        (nn.functional.softplus, "4,16"),
        (lambda x: nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"), "4,16"),
        (lambda x: nn.functional.grid_sample(x[None, None], torch.zeros(1, 4, 4, 2)), "4,16"),
        (lambda x: nn.functional.group_norm(x, 4), "4,16"),
        (lambda x: nn.functional.rms_norm(x, (16,)), "4,16"),
        (lambda x: nn.functional.unfold(x[None, None], 2), "4,16"),
    ],
)
def test_operators_of_pytorch_are_known(call: Callable[..., torch.Tensor], text: str) -> None:
    both = (lambda x: call(x, x)) if call is torch.cdist else call
    assert read(Calls(both), text).unknown == {}


def test_a_sort_moves_more_than_a_copy_and_a_transform_computes_more_than_a_sum() -> None:
    def forward(call: Callable[..., torch.Tensor], kind: str) -> Any:
        return next(each for each in read(Calls(call)).operators if each.kind == kind)

    copied = forward(lambda x: x.T.clone(), "clone")
    assert forward(lambda x: x.sort(-1).values, "sort").bytes_moved > 4 * copied.bytes_moved
    transformed = forward(lambda x: torch.fft.fft(x).abs(), "fft_fft")
    assert transformed.flops == 2.5 * 64 * 4  # of real values


def test_records_add_unknown_calls() -> None:
    record = Record(kind="x", phase=StepPhase.FORWARD, layer="")
    assert record.build().unknown == 0
