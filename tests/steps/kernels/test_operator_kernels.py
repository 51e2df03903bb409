"""Operators are split into kernels, and no work is lost."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from foretell.core.workload import Operator, StepPhase, Workload
from foretell.steps.kernels.kernel_calls import Attention, Convolution, KernelCall, MemoryPass, Product
from foretell.steps.kernels.operator_kernels import split_kernels
from foretell.workloads.capture import capture
from foretell.workloads.step_options import InputSpec, StepOptions

FORWARD, BACKWARD, UPDATE = StepPhase
PLAIN: dict[str, str] = {}


class Products(nn.Module):
    """A layer with a bias, one without, and products of two activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(24, 32)
        self.second = nn.Linear(32, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.second(torch.relu(self.first(x)))
        heads = inner.view(4, 10, 2, 8).transpose(1, 2)
        scores = heads @ heads.transpose(-1, -2)
        mixed = torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), heads)
        return torch.baddbmm(mixed.flatten(0, 1), scores.flatten(0, 1), heads.flatten(0, 1))


def count_flops(call: KernelCall) -> float:
    if isinstance(call, Product):
        return 2.0 * call.many * call.rows * call.columns * call.inner
    if isinstance(call, Convolution):
        positions = call.images * math.prod(call.size_out)
        return 2.0 * positions * call.filters * call.channels / call.groups * math.prod(call.kernel)
    return call.flops if isinstance(call, MemoryPass) else 0.0


def read(model: nn.Module, *shape: int, options: StepOptions | None = None) -> Workload:
    return capture(model, [InputSpec(shape=shape)], options=options or StepOptions(loss="sum"))


def find(workload: Workload, kind: str, phase: StepPhase) -> Operator:
    return next(each for each in workload.operators if (each.kind, each.phase) == (kind, phase))


@pytest.mark.parametrize("phase", [FORWARD, BACKWARD])
@pytest.mark.parametrize("kind", ["linear", "matmul", "baddbmm", "einsum"])
def test_products_have_all_operations_of_their_operator(kind: str, phase: StepPhase) -> None:
    found = [each for each in read(Products(), 4, 10, 24).operators if (each.kind, each.phase) == (kind, phase)]
    assert found
    for operator in found:
        calls = split_kernels(operator, settings=PLAIN)
        work = sum(count_flops(call) for call in calls)
        # a copy that belongs to the operator is no operation of a product
        assert work == pytest.approx(operator.flops, rel=0.02)
        assert sum(isinstance(call, Product) for call in calls) == (1 if phase is FORWARD else 1 + _has_both(operator))


def _has_both(operator: Operator) -> bool:
    return operator.input_gradient


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("layer", [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d])
def test_convolutions_have_all_operations_of_their_operator(layer: type[nn.Module], groups: int) -> None:
    kernel = 3
    sizes = {"Conv1d": (20,), "Conv3d": (5, 6, 7)}.get(layer.__name__, (10, 12))
    before = {"Conv1d": nn.Conv1d, "Conv3d": nn.Conv3d}.get(layer.__name__, nn.Conv2d)(4, 8, 1)
    workload = read(nn.Sequential(before, layer(8, 16, kernel, stride=2, groups=groups, bias=False)), 2, 4, *sizes)
    forward = [each for each in workload.operators if each.kind.startswith("conv") and each.phase is FORWARD][-1]
    backward = next(each for each in workload.operators if each.kind == forward.kind and each.phase is BACKWARD)
    for operator in (forward, backward):
        calls = split_kernels(operator, settings=PLAIN)
        assert all(isinstance(call, Convolution) for call in calls)
        assert sum(map(count_flops, calls)) == pytest.approx(operator.flops)


def test_a_transposed_convolution_runs_as_the_gradient_of_one() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.ConvTranspose2d(6, 4, 2, stride=2, bias=False))
    workload = read(model, 2, 3, 8, 8)
    (forward,) = split_kernels(find(workload, "conv_transpose2d", FORWARD), settings=PLAIN)
    backward = split_kernels(find(workload, "conv_transpose2d", BACKWARD), settings=PLAIN)
    assert isinstance(forward, Convolution)
    assert (forward.direction, forward.channels, forward.filters) == ("data", 4, 6)
    assert (forward.size_in, forward.size_out, forward.stride) == ((16, 16), (8, 8), 2)
    assert backward == (replace(forward, direction="forward"), replace(forward, direction="weights"))


def test_the_first_layer_computes_only_the_gradient_of_its_weight() -> None:
    workload = read(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 8)), 40, 24)
    first, second = (each for each in workload.operators if each.kind == "linear" and each.phase is BACKWARD)
    (weight,) = (call for call in split_kernels(second, settings=PLAIN) if isinstance(call, Product))
    assert (weight.rows, weight.columns, weight.inner) == (24, 32, 40)
    inner, _weight = (call for call in split_kernels(first, settings=PLAIN) if isinstance(call, Product))
    assert (inner.rows, inner.columns, inner.inner) == (40, 32, 8)


def test_frozen_weights_get_no_product() -> None:
    model = nn.Sequential(nn.Linear(24, 32), nn.Linear(32, 8), nn.Linear(8, 4))
    model[1].weight.requires_grad_(False)
    model[1].bias.requires_grad_(False)
    operators = [each for each in read(model, 40, 24).operators if each.kind == "linear" and each.phase is BACKWARD]
    (only,) = split_kernels(operators[1], settings=PLAIN)
    assert only == Product(rows=40, columns=32, inner=8)


def test_the_gradient_of_a_bias_is_a_sum() -> None:
    workload = read(nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 4, 1)), 2, 3, 8, 8)
    *_, bias = split_kernels(find(workload, "conv2d", BACKWARD), settings=PLAIN)
    assert isinstance(bias, MemoryPass)
    assert (bias.kind, bias.backward, bias.elements) == ("sum", True, 2 * 4 * 8 * 8)


def test_copies_of_an_operator_are_kept() -> None:
    operator = find(read(Products(), 4, 10, 24), "matmul", FORWARD)
    product, *copies = split_kernels(operator, settings=PLAIN)
    assert isinstance(product, Product)
    moved = 4 * product.many * (2 * product.rows * product.inner + product.rows * product.columns)
    assert moved + sum(call.bytes_moved for call in copies if isinstance(call, MemoryPass)) == operator.bytes_moved


def test_precision_is_that_of_the_operator() -> None:
    operator = Operator(
        kind="linear", phase=FORWARD, inputs=((8, 16), (32, 16)), output=(8, 32), flops=8192.0, bytes_moved=3584.0
    )
    for dtype, asked, expected in [
        ("float32", "", "fp32"),
        ("float32", "tf32", "tf32"),
        ("bfloat16", "bf16", "bf16"),
        ("float16", "fp16", "fp16"),
        ("bfloat16", "fp8", "fp8"),
    ]:
        (call,) = split_kernels(replace(operator, dtype=dtype), settings={"precision": asked})
        assert isinstance(call, Product)
        assert call.precision == expected


def test_convolutions_in_float32_may_use_tf32() -> None:
    (call, _bias) = split_kernels(find(read(nn.Conv2d(3, 6, 3), 2, 3, 8, 8), "conv2d", FORWARD), settings=PLAIN)
    assert isinstance(call, Convolution)
    assert call.precision == "tf32"


def test_experts_share_the_rows() -> None:
    operator = Operator(
        kind="_grouped_mm",
        phase=FORWARD,
        inputs=((64, 16), (4, 16, 32), (4,)),
        output=(64, 32),
        dtype="bfloat16",
        flops=2.0 * 64 * 16 * 32,
        bytes_moved=(64 * 16 + 4 * 16 * 32 + 64 * 32) * 2.0,
    )
    (call,) = split_kernels(operator, settings=PLAIN)
    assert call == Product(rows=16, columns=32, inner=16, many=4, precision="bf16")


def test_attention_keeps_its_heads() -> None:
    operator = Operator(
        kind="scaled_dot_product_attention",
        phase=BACKWARD,
        inputs=((2, 8, 128, 64), (2, 2, 256, 64), (2, 2, 256, 64)),
        output=(2, 8, 128, 64),
        attributes=(("causal", 1),),
        dtype="bfloat16",
    )
    (call,) = split_kernels(operator, settings=PLAIN)
    expected = Attention(
        batch=2, heads=8, key_heads=2, queries=128, keys=256, width=64, causal=True, backward=True, precision="bf16"
    )
    assert call == replace(expected, library="flash-2")
    (call,) = split_kernels(operator, settings={**PLAIN, "attention": "cudnn"})
    assert call == replace(expected, library="cudnn")


@pytest.mark.parametrize("phase", [FORWARD, BACKWARD])
def test_multi_head_attention_has_all_its_products(phase: StepPhase) -> None:
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Linear(32, 32)
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.before(x)
            return self.attention(x, x, x)[0]

    operator = find(read(Attend(), 2, 16, 32), "multi_head_attention_forward", phase)
    calls = split_kernels(operator, settings=PLAIN)
    products = sum(count_flops(call) for call in calls if isinstance(call, Product))
    rows = 2 * 16
    expected = 2 * rows * 32 * 4 * 32 + 2 * 2 * 8 * 16 * 16 * 8
    assert products == (1 if phase is FORWARD else 2) * expected
    moved = [call for call in calls if isinstance(call, MemoryPass)]
    assert {call.kind for call in moved} == {"softmax", "clone"}


def test_an_operator_that_is_not_known_is_a_pass_by_its_bytes() -> None:
    operator = Operator(
        kind="strange", phase=FORWARD, inputs=((8, 16),), output=(8,), flops=128.0, bytes_moved=544.0, kernels=3
    )
    (call,) = split_kernels(operator, settings=PLAIN)
    assert call == MemoryPass(kind="strange", elements=128, row=16, bytes_moved=544.0, flops=128.0, kernels=3)
    assert split_kernels(replace(operator, kernels=0), settings=PLAIN) == ()


def test_an_update_of_many_tensors_counts_all_of_them() -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)])
    options = StepOptions(loss="sum", implementation="foreach")
    update = next(each for each in read(model, 4, 64, options=options).operators if each.phase is UPDATE)
    (call,) = split_kernels(update, settings=PLAIN)
    assert isinstance(call, MemoryPass)
    assert call.elements == 40 * (64 * 64 + 64)
    assert call.kernels == update.kernels * 2


@pytest.mark.parametrize("phase", [FORWARD, BACKWARD])
def test_multi_head_attention_without_weights_is_fused(phase: StepPhase) -> None:
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Linear(32, 32)
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.before(x)
            return self.attention(x, x, x, need_weights=False)[0]

    calls = split_kernels(find(read(Attend(), 2, 16, 32), "multi_head_attention_forward", phase), settings=PLAIN)
    (attention,) = [call for call in calls if isinstance(call, Attention)]
    assert (attention.batch, attention.heads, attention.queries, attention.width) == (2, 4, 16, 8)
    assert attention.backward is (phase is BACKWARD)
    products = sum(count_flops(call) for call in calls if isinstance(call, Product))
    assert products == (1 if phase is FORWARD else 2) * 2 * 2 * 16 * 32 * 4 * 32


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("phase", [FORWARD, BACKWARD])
def test_recurrent_layers_are_products_for_all_inputs_and_for_each_step(
    kind: type[nn.Module], phase: StepPhase
) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.layers = nn.Linear(16, 16), kind(16, 32, num_layers=2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(self.before(x))[0]

    operator = find(read(Recurrent(), 4, 7, 16), kind.__name__.lower(), phase)
    calls = split_kernels(operator, settings=PLAIN)
    gates = 4 if kind is nn.LSTM else 3
    first = (phase is BACKWARD) * 2 * 2 * 4 * gates * 32 * 32  # no gradient for the states before the first step
    products = sum(count_flops(call) for call in calls if isinstance(call, Product))
    assert products == operator.product_flops + first
    assert sum(call.kernels for call in calls if isinstance(call, MemoryPass)) == 2 * 7
    assert sum(isinstance(call, Product) and call.rows == 4 for call in calls) == 2 * 7


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch, self.each = nn.BatchNorm2d(8), nn.InstanceNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(self.each(self.batch(x)), 2).mean((2, 3))


def test_rows_are_what_is_normalized_or_reduced_together() -> None:
    workload = read(Norms(), 4, 8, 6, 6)
    rows = {
        kind: call.row
        for kind in ("batch_norm", "instance_norm", "max_pool2d", "mean")
        for call in split_kernels(find(workload, kind, FORWARD), settings=PLAIN)
        if isinstance(call, MemoryPass)
    }
    assert rows == {"batch_norm": 4 * 6 * 6, "instance_norm": 6 * 6, "max_pool2d": 4, "mean": 9}


def test_batch_norm_of_inference_is_one_pass_of_its_own_kind() -> None:
    operator = find(read(Norms(), 4, 8, 6, 6), "batch_norm", FORWARD)
    (training,) = split_kernels(operator, settings={"mode": "training"})
    (inference,) = split_kernels(operator, settings={"mode": "inference"})
    assert isinstance(training, MemoryPass)
    assert isinstance(inference, MemoryPass)
    assert (training.kind, training.kernels) == ("batch_norm", operator.kernels)
    assert (inference.kind, inference.kernels) == ("batch_norm_inference", 1)
