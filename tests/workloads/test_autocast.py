"""Mixed precision casts as CUDA's autocast does."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from foretell.core.workload import Operator, StepPhase
from foretell.workloads import autocast
from foretell.workloads.capture import capture
from foretell.workloads.step_options import StepOptions, parse_input


class Calls(nn.Module):
    """A linear layer, whose result is in half precision, and a call."""

    def __init__(self, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.call = nn.Linear(16, 16, bias=False), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.first(x))


def read(call: Callable[[torch.Tensor], torch.Tensor], precision: str = "bf16", loss: str = "sum") -> list[Operator]:
    model = Calls(call)
    return list(capture(model, [parse_input("4,16")], options=StepOptions(loss=loss, precision=precision)).operators)


def find(operators: list[Operator], kind: str, phase: StepPhase = StepPhase.FORWARD) -> Operator:
    return next(each for each in operators if each.kind == kind and each.phase is phase)


@pytest.mark.parametrize(
    ("call", "kind", "dtype"),
    [
        (lambda x: x @ x.T, "matmul", "bfloat16"),
        (torch.relu, "relu", "bfloat16"),
        (functional.gelu, "gelu", "bfloat16"),
        (lambda x: x + 1.0, "__add__", "bfloat16"),
        (lambda x: functional.layer_norm(x, (16,)), "layer_norm", "float32"),
        (lambda x: functional.rms_norm(x, (16,)), "rms_norm", "float32"),
        (lambda x: functional.softmax(x, -1), "softmax", "float32"),
        (lambda x: x.cumsum(-1), "cumsum", "float32"),
        (lambda x: x.pow(2), "__pow__", "float32"),
        (torch.exp, "exp", "float32"),
        (lambda x: torch.logsumexp(x, -1), "logsumexp", "float32"),
        (lambda x: functional.interpolate(x[None, None], scale_factor=2.0), "interpolate", "float32"),
        (lambda x: torch.cat([x, x]), "cat", "bfloat16"),
    ],
)
def test_each_kind_runs_in_the_precision_of_autocast(call: Any, kind: str, dtype: str) -> None:
    assert find(read(call), kind).dtype == dtype


def test_a_softmax_reads_half_and_writes_single_precision_in_one_kernel() -> None:
    operators = read(lambda x: functional.softmax(x, -1).tanh())
    forward, backward = (find(operators, "softmax", phase) for phase in (StepPhase.FORWARD, StepPhase.BACKWARD))
    elements = 4 * 16
    assert (forward.kernels, forward.bytes_moved) == (1, elements * (2 + 4))
    assert (backward.kernels, backward.bytes_moved) == (1, elements * (4 + 4 + 2))


def test_a_layer_norm_is_preceded_by_a_cast_of_its_own() -> None:
    operators = read(lambda x: functional.layer_norm(x, (16,)))
    place = operators.index(find(operators, "layer_norm"))
    assert (operators[place - 1].kind, operators[place - 1].dtype) == ("to", "float32")


def test_the_loss_is_computed_from_half_precision_scores_without_a_copy() -> None:
    operators = read(lambda x: x, loss="cross_entropy")
    assert [each.kind for each in operators if each.phase is StepPhase.FORWARD][-2:] == ["linear", "cross_entropy"]
    assert find(operators, "cross_entropy").dtype == "float32"


@pytest.mark.parametrize(("precision", "scaled"), [("fp16", True), ("bf16", False)])
def test_gradients_are_unscaled_with_float16_only(precision: str, scaled: bool) -> None:
    kinds = {each.kind for each in read(lambda x: x, precision) if each.phase is StepPhase.UPDATE}
    assert ("_amp_foreach_non_finite_check_and_unscale_" in kinds) is scaled


def test_the_lists_are_those_of_the_installed_pytorch() -> None:
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    if not header.exists():
        pytest.skip("this PyTorch has no headers")
    lists = re.split(r"#define AT_FORALL_(\w+)\(_\)", header.read_text())
    named = {name: set(re.findall(r"_\((\w+)", body)) for name, body in zip(lists[1::2], lists[2::2], strict=True)}
    internal = re.compile(r"_.*|convolution|.*_?upsample_.*|linalg_(vector|matrix)_norm|nll_loss2d|pow")
    lower = {name for name in named["LOWER_PRECISION_FP"] if not internal.fullmatch(name)}
    single = {name for name in named["FP32"] if not internal.fullmatch(name)}
    assert lower <= autocast._LOWER_PRECISION
    assert single <= autocast._FLOAT32
    assert named["PROMOTE"] - {"grid_sampler"} <= autocast._PROMOTED


class Norm(nn.Module):
    """A norm that stays in half precision where autocast is on, as those of timm do if they are asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        with torch.autocast(device_type=x.device.type, enabled=False):
            x = functional.layer_norm(x, (16,))
        return self.last(x)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")])
def test_nothing_is_cast_where_the_code_switches_autocast_off(precision: str, dtype: str) -> None:
    options = StepOptions(precision=precision, mode="inference")
    operators = list(capture(Norm(), [parse_input("4,16")], options=options).operators)
    assert find(operators, "layer_norm").dtype == dtype
    casts = [each for each in operators if each.kind == "to"]
    assert len(casts) == (0 if precision == "fp32" else 5)  # the input and the parameters of both layers
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_for_a_gpu_that_is_not_there_leaves_the_casts_on() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16, False), torch.autocast(device_type="cuda", enabled=True):
            return x @ x.T

    assert find(read(call), "matmul").dtype == "bfloat16"


def test_recurrent_layers_take_what_the_one_before_returned_in_half_precision() -> None:
    first, second = nn.LSTM(16, 16), nn.LSTM(16, 16)
    operators = read(lambda x: second(first(x[None])[0])[0])
    assert [each.dtype for each in operators if each.kind == "lstm" and each.phase is StepPhase.FORWARD] == [
        "bfloat16",
        "bfloat16",
    ]
