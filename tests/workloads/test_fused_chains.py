"""Chains of operators in one kernel: less is moved and launched, as much is computed, and nothing reads too early."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.workloads import models
from torch import nn
from torch.nn import functional

from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.capture import capture
from foretell.workloads.chain_search import find_chains
from foretell.workloads.fused_chains import FUSED, fuse_chains
from foretell.workloads.step_options import StepOptions, parse_input

SIZE = 64 * 32 * 4  # bytes of the tensor below


class Calls(nn.Module):
    """A product, and calls after it."""

    def __init__(self, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.call = nn.Linear(32, 32), nn.Linear(32, 32), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.call(self.first(x)))


def read(model: nn.Module, text: str = "64,32", **options: object) -> tuple[Workload, Workload]:
    """The step as it is, and compiled."""
    given = [parse_input(text)]
    plain = StepOptions(**options)  # type: ignore[arg-type]
    return capture(model, given, options=plain), capture(model, given, options=replace(plain, compile=True))


def list_chains(workload: Workload, phase: StepPhase = StepPhase.FORWARD) -> list[Operator]:
    return [each for each in workload.operators if each.phase is phase and not each.product_flops]


def test_a_chain_reads_its_input_and_writes_its_output_once() -> None:
    _, compiled = read(Calls(lambda x: torch.tanh(functional.gelu(x) * 2.0 + 1.0)), mode="inference")
    (chain,) = list_chains(compiled)
    assert (chain.kind, chain.kernels, chain.get("operators", 0)) == (FUSED, 1, 4)
    assert chain.bytes_moved == 2 * SIZE


def test_the_backward_phase_reads_the_gradient_and_what_the_forward_phase_read() -> None:
    _, compiled = read(Calls(lambda x: torch.tanh(functional.gelu(x) * 2.0)), loss="sum")
    (forward,) = [each for each in list_chains(compiled) if each.kind == FUSED]
    (backward,) = [each for each in list_chains(compiled, StepPhase.BACKWARD) if each.kind == FUSED]
    assert forward.bytes_moved == 2 * SIZE
    assert 3 * SIZE <= backward.bytes_moved <= 4 * SIZE


def test_a_residual_is_read_again_after_the_layer_between() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            return torch.relu(self.second(x * 2.0) + x)

    _, compiled = read(Residual(), mode="inference")
    first, last = list_chains(compiled)
    assert first.bytes_moved == SIZE + 2 * SIZE  # writes the residual and the input of the layer
    assert last.bytes_moved == 2 * SIZE + SIZE


def test_branches_of_a_gate_are_one_chain_in_both_phases() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(functional.silu(self.gate(x)) * self.up(x))

    _, compiled = read(Gate(), loss="sum")
    (forward,) = [each for each in list_chains(compiled) if each.kind == FUSED]
    assert forward.bytes_moved == 3 * SIZE
    chains = [each for each in list_chains(compiled, StepPhase.BACKWARD) if each.kind == FUSED]
    assert any(each.get("operators", 0) == 2 for each in chains)


def test_norms_and_softmax_join_their_neighbours_and_statistics_do_not() -> None:
    _, row = read(Calls(lambda x: functional.softmax(functional.layer_norm(x, (32,)) * 2.0, -1)), mode="inference")
    assert [each.kernels for each in list_chains(row)] == [1]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
    _, trained = read(model, "4,3,16,16", loss="sum")
    norm = next(each for each in list_chains(trained) if each.kind == FUSED)
    assert norm.kernels == 2  # statistics, then the result
    _, applied = read(model, "4,3,16,16", mode="inference")
    assert [each.kernels for each in list_chains(applied)] == [1]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "pure-fp16"])
@pytest.mark.parametrize(
    ("model", "text"),
    [(models.Perceptron(), "4,16"), (models.Images(), "4,3,16,16"), (models.UNet(), "2,3,16,16"),
     (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), "2,10,32")],
)  # fmt: skip
def test_as_much_is_computed_with_fewer_kernels_and_bytes(model: nn.Module, text: str, precision: str) -> None:
    plain, compiled = read(model, text, precision=precision)
    assert compiled.flops == pytest.approx(plain.flops)
    assert compiled.product_flops == plain.product_flops
    assert compiled.bytes_moved < plain.bytes_moved
    assert sum(each.kernels for each in compiled.operators) < sum(each.kernels for each in plain.operators)
    products = [each for each in plain.operators if each.product_flops]
    assert sorted(map(repr, products)) == sorted(repr(each) for each in compiled.operators if each.product_flops)
    assert set(compiled.views) == {0}
    _check_order(compiled)


def test_the_update_is_one_kernel_that_reads_all_gradients() -> None:
    _, compiled = read(models.Perceptron(), "4,16", optimizer="adamw", precision="fp16")
    updates = [place for place, each in enumerate(compiled.operators) if each.phase is StepPhase.UPDATE]
    assert [compiled.operators[place].kind for place in updates] == [
        "_amp_foreach_non_finite_check_and_unscale_", "_fused_adamw_",
    ]  # fmt: skip
    _, fused = read(models.Perceptron(), "4,16", optimizer="adamw", precision="fp16", implementation="fused")
    assert compiled.operators[updates[-1]].bytes_moved == fused.operators[-1].bytes_moved


def test_a_tensor_that_three_layers_cast_is_cast_once() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.layers = nn.LayerNorm(32), nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norm(x)
            return torch.stack([layer(x) for layer in self.layers]).sum(0)

    _, compiled = read(Three(), mode="inference", precision="bf16")
    casts = [each for each in compiled.operators if each.kind == "to" and not each.parameters]
    assert casts == []  # the one cast is part of the norm
    assert next(each for each in compiled.operators if each.kind == FUSED).get("operators", 0) == 2


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_reading_stays_possible(seed: int) -> None:
    draw = random.Random(seed)
    operators, sources = [], []
    for place in range(60):
        kind = draw.choice(["relu", "relu", "add", "linear", "sort"])
        shape = (draw.choice([4, 64]), 8)
        operators.append(
            Operator(kind=kind, phase=StepPhase.FORWARD, inputs=(shape,), output=shape, flops=10.0, bytes_moved=1e4,
                     product_flops=10.0 if kind == "linear" else 0.0)
        )  # fmt: skip
        sources.append(tuple(sorted(draw.sample(range(place), min(place, draw.choice([0, 1, 1, 2, 3]))))))
    workload = Workload(
        name="x", operators=tuple(operators), layers=("",) * 60, views=(1,) * 60, sources=tuple(sources)
    )
    fused = fuse_chains(workload)
    _check_order(fused)
    assert fused.flops == workload.flops
    places = [place for chain in find_chains(workload) for place in chain.places]
    assert sorted(places) == list(range(60))


def _check_order(workload: Workload) -> None:
    assert all(each < place for place, own in enumerate(workload.sources) for each in own)
    ready = [each.ready for each in workload.gradients]
    assert ready == sorted(ready)
