"""The memory of a step with another batch, and of one of several batches, against captures of just that."""

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from tests.memory.sharded_training import TOKENS, VOCABULARY, Transformer
from torch import nn

from foretell.core.layouts import DATA_PARALLEL, parse_layout
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.batch_shares import hold_gradients, resize_activations
from foretell.memory.layout_shards import apply_layout
from foretell.memory.pipeline_stages import find_live_peak
from foretell.memory.usage import measure_usage
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import StepOptions, parse_input

TEXT = f"{TOKENS}:int64:{VOCABULARY}"
IMAGE = "3,32,32"


class Images(nn.Module):
    """Convolutions with as many filters as a batch may have examples."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 8, 16, 32, 64]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(given, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
            for given, width in pairwise(widths)
        )
        self.head = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            images = layer(images)
        scores: torch.Tensor = self.head(images.mean((2, 3)))
        return scores


def record(model: type[nn.Module], given: str, batch: int, *, precision: str = "fp32", **options: int) -> MemoryTrace:
    step = StepOptions(optimizer="adamw", loss="cross_entropy", precision=precision, **options)  # type: ignore[arg-type]
    return capture_memory(model(), [parse_input(f"{batch},{given}")], options=step)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("before", "after"), [(16, 8), (8, 16), (16, 2)])
@pytest.mark.parametrize(("model", "given"), [(Transformer, TEXT), (Images, IMAGE)])
def test_another_batch(model: type[nn.Module], given: str, before: int, after: int, precision: str) -> None:
    resized = resize_activations(record(model, given, before, precision=precision), Fraction(after, before))
    captured = record(model, given, after, precision=precision)
    assert find_live_peak(resized) == pytest.approx(find_live_peak(captured), rel=0.03)
    for kind in set(MemoryKind) - {MemoryKind.TEMPORARY}:  # some of them are as large as weights
        assert resized.measure(kind) == pytest.approx(captured.measure(kind), rel=0.03, abs=64), kind


def test_the_same_batch_is_the_same_step() -> None:
    trace = record(Images, IMAGE, 4)
    assert resize_activations(trace, Fraction(1)) is trace


@pytest.mark.parametrize(("model", "given"), [(Transformer, TEXT), (Images, IMAGE)])
def test_one_of_several_batches_has_gradients_from_its_begin(model: type[nn.Module], given: str) -> None:
    held = hold_gradients(record(model, given, 4))
    accumulated = record(model, given, 4, accumulation=3)
    assert find_live_peak(held) == pytest.approx(find_live_peak(accumulated), rel=0.001)
    assert find_live_peak(held) >= find_live_peak(record(model, given, 4))


@pytest.mark.parametrize("layout", [*DATA_PARALLEL, "tp=2,ddp", "tp=2,sp,zero1", "pp=2,micro=4,ddp", "fsdp,hsdp=2"])
def test_layouts_that_hold_gradients_need_more(layout: str) -> None:
    shared = apply_layout(record(Transformer, TEXT, 2, precision="bf16"), parse_layout(layout, gpus=8))
    held = hold_gradients(shared)
    assert measure_usage(held).allocated_bytes > 0
    assert find_live_peak(held) >= find_live_peak(shared)
