"""Sources of operators and ready gradients are those of PyTorch's own graph."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.workloads import models
from tests.workloads.test_capture import read
from torch import nn
from torch.nn import functional

from foretell.core.workload import Gradient, MeasuredStep, StepPhase, Workload
from foretell.workloads.measurement_files import Profile, load_profile, save_profile


def find_places(workload: Workload, phase: StepPhase, kind: str) -> list[int]:
    return [place for place, each in enumerate(workload.operators) if (each.phase, each.kind) == (phase, kind)]


class Turned(nn.Module):
    """Views of all kinds, of which one is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        left, right = hidden.T.T.unflatten(1, (2, 8)).flatten(1).chunk(2)
        out = torch.zeros(4, 16)
        out[:2] = left.relu()
        out[2:].add_(right)
        return self.second(out) + hidden.detach().mean()


class TestForward:
    def test_a_call_reads_the_makers_of_its_tensors(self) -> None:
        workload = read(models.Perceptron(), "4,16")
        assert workload.sources[:8] == ((), (0,), (1,), (2,), (3,), (2, 4), (5,), (6,))

    def test_views_keep_the_sources_of_their_base(self) -> None:
        workload = read(Turned(), "4,16", loss="sum")
        named = {each.kind: place for place, each in enumerate(workload.operators) if each.phase == "forward"}
        (first, second) = find_places(workload, StepPhase.FORWARD, "linear")
        assert workload.sources[named["relu"]] == (first,)
        assert workload.sources[named["__setitem__"]] == (named["zeros"], named["relu"])
        assert workload.sources[named["__iadd__"]] == (first, named["__setitem__"])
        assert workload.sources[second] == (named["__setitem__"], named["__iadd__"])

    def test_detached_tensors_are_read_but_have_no_gradient(self) -> None:
        workload = read(Turned(), "4,16", loss="sum")
        (mean,) = find_places(workload, StepPhase.FORWARD, "mean")
        assert workload.sources[mean] == (0,)
        assert not find_places(workload, StepPhase.BACKWARD, "mean")

    def test_constant_masks_are_read_as_one_operator(self) -> None:
        workload = read(models.Masked(), "4,16")
        assert workload.sources[:3] == ((), (0,), (1,))


class TestBackward:
    def test_it_reads_its_forward_call_and_the_gradients_of_those_who_read_that(self) -> None:
        workload = read(models.UNet(), "2,3,8,8")
        kinds = [each.kind for each in workload.operators]
        sources = dict(zip(range(len(kinds)), workload.sources, strict=True))
        assert kinds[10:17] == [
            "cross_entropy",
            "conv2d",
            "conv_transpose2d",
            "relu",
            "conv2d",
            "max_pool2d",
            "accumulate",
        ]
        assert [sources[place] for place in range(10, 17)] == [
            (9,), (8, 10), (6, 11), (5, 12), (4, 13), (3, 14), (11, 15)
        ]  # fmt: skip

    @pytest.mark.parametrize("model", [models.Images(), models.Perceptron(), models.Words(), Turned()])
    def test_sources_come_before_and_every_backward_operator_has_one(self, model: nn.Module) -> None:
        inputs = {models.Images: "4,3,16,16", models.Words: "4,10:int64:100"}.get(type(model), "4,16")
        workload = read(model, inputs)
        assert len(workload.sources) == len(workload.operators)
        for place, (operator, sources) in enumerate(zip(workload.operators, workload.sources, strict=True)):
            assert all(0 <= source < place for source in sources)
            assert list(sources) == sorted(set(sources))
            assert sources or operator.phase is not StepPhase.BACKWARD

    def test_recomputed_blocks_are_read_instead_of_the_first_ones(self) -> None:
        workload = read(models.Images(blocks=2), "4,3,16,16", checkpointing=True)
        again = [place for place, each in enumerate(workload.operators) if each.get("recomputed", 0)]
        for place, operator in enumerate(workload.operators):
            if operator.phase is StepPhase.BACKWARD and workload.layers[place].startswith("blocks"):
                assert set(workload.sources[place]) & set(again)
        (stem,) = [place for place, layer in enumerate(workload.layers[:1]) if layer == "stem"]
        first = min(place for place in again if workload.layers[place] == "blocks.0.conv")
        assert workload.sources[first] == (stem,)


class TestGradients:
    @pytest.mark.parametrize("implementation", ["for-loop", "foreach", "fused"])
    def test_all_are_there_with_their_sizes_and_the_last_layers_first(self, implementation: str) -> None:
        model = models.Perceptron()
        workload = read(model, "4,16", implementation=implementation)
        assert [each.bytes_ for each in workload.gradients] == [40, 640, 64, 1024, 64, 1024]
        assert sum(each.bytes_ for each in workload.gradients) == 4 * workload.parameters
        assert [workload.layers[each.ready] for each in workload.gradients[::2]] == ["head", "layers.1", "layers.0"]

    def test_they_are_ready_in_the_order_in_which_hooks_of_a_real_step_are_called(self) -> None:
        model = models.UNet()
        order: list[int] = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda each: order.append(4 * each.numel()))  # type: ignore[no-untyped-call]
        functional.cross_entropy(model(torch.rand(2, 3, 8, 8)), torch.zeros(2, 8, 8, dtype=torch.int64)).backward()  # type: ignore[no-untyped-call]
        assert [each.bytes_ for each in read(models.UNet(), "2,3,8,8").gradients] == order

    def test_tied_weights_are_ready_once_both_are_added(self) -> None:
        workload = read(models.Words(), "4,10:int64:100")
        assert workload.operators[workload.gradients[-1].ready].kind == "accumulate"
        assert len(workload.gradients) == 5

    def test_frozen_parameters_have_none(self) -> None:
        assert len(read(models.Frozen(), "4,16").gradients) == 2

    def test_mixed_precision_ends_with_the_cast_back(self) -> None:
        workload = read(models.Perceptron(), "4,16", precision="bf16")
        assert {workload.operators[each.ready].kind for each in workload.gradients} == {"to"}
        assert sum(each.bytes_ for each in workload.gradients) == 4 * workload.parameters

    @pytest.mark.parametrize("batches", [2, 3, 5])
    def test_of_several_batches_the_last_one_counts_and_adds_to_the_sum_of_those_before(self, batches: int) -> None:
        workload = read(models.Perceptron(), "4,16", accumulation=batches)
        begin = find_places(workload, StepPhase.FORWARD, "cross_entropy")[-1]
        assert min(each.ready for each in workload.gradients) > begin
        sums = [place for place, each in enumerate(workload.operators) if each.kind == "accumulate"]
        last = workload.gradients[-1].ready
        chain = [last]
        while set(workload.sources[chain[-1]]) & set(sums):
            chain.append(min(set(workload.sources[chain[-1]]) & set(sums)))
        assert len(chain) == batches - 1
        assert workload.operators[min(workload.sources[chain[-1]])].kind == "linear"

    def test_ready_positions_never_decrease(self) -> None:
        ready = [each.ready for each in read(models.Images(blocks=5), "4,3,16,16").gradients]
        assert ready == sorted(ready)


class TestUpdate:
    def test_each_parameter_reads_its_own_gradient(self) -> None:
        workload = read(models.Perceptron(), "4,16", optimizer="adam", implementation="for-loop")
        made = {workload.layers[each.ready]: each.ready for each in workload.gradients}
        first = find_places(workload, StepPhase.UPDATE, "lerp_")
        assert [workload.layers[place] for place in first[::2]] == ["layers.0", "layers.1", "head"]
        assert all(made[workload.layers[place]] in workload.sources[place] for place in first)

    def test_one_kernel_for_all_reads_all(self) -> None:
        workload = read(models.Perceptron(), "4,16", implementation="fused")
        assert workload.sources[-1] == tuple(sorted({each.ready for each in workload.gradients}))

    def test_gradients_are_unscaled_before_they_are_read(self) -> None:
        workload = read(models.Perceptron(), "4,16", precision="fp16")
        unscale = next(place for place, each in enumerate(workload.operators) if each.kind.startswith("_amp"))
        assert workload.sources[unscale] == tuple(sorted({each.ready for each in workload.gradients}))
        for sources in workload.sources[unscale + 1 :]:
            assert all(source >= unscale for source in sources)


def test_no_tensor_and_no_hook_of_a_step_is_left() -> None:
    kept: list[weakref.ref[torch.Tensor]] = []

    class Watched(models.Perceptron):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            kept.append(weakref.ref(out))
            return out

    model = Watched()
    read(model, "4,16")
    gc.collect()
    assert [each() for each in kept] == [None]
    assert all(not each._post_accumulate_grad_hooks for each in model.parameters())


def test_gradients_are_kept_in_profiles_and_sources_are_not(tmp_path: Path) -> None:
    workload = read(models.Perceptron(), "4,16")
    times = np.zeros(len(workload.operators))
    step = MeasuredStep(
        workload=workload, device="cpu", iteration_s=1, kernel_s=times, span_s=times, start_s=times, launch_s=times
    )
    save_profile(Profile(step=step, steps=1, spread=0, overhead=0), tmp_path / "profile.json")
    again = load_profile(tmp_path / "profile.json").step.workload
    assert again.gradients == workload.gradients
    assert isinstance(again.gradients[0], Gradient)
    assert again.sources == ()
