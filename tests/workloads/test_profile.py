"""Measured real steps of tiny networks. Their times are not compared with anything."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.core.errors import SpecError, WorkloadError
from foretell.core.workload import StepPhase
from foretell.workloads.measurement_files import Profile
from foretell.workloads.profile import profile, read_role
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.step_timing import Role
from foretell.workloads.training_step import copy_without_data

IMAGES = [InputSpec(shape=(4, 3, 8, 8))]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.again = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.conv(x)))
        x = x + self.again(x)
        y: Tensor = self.head(x.mean((2, 3)))
        return y


def measure(model: nn.Module, inputs: list[InputSpec], **options: object) -> Profile:
    torch.manual_seed(0)
    return profile(model, inputs, options=StepOptions(**options), seconds=0.0, device=torch.device("cpu"))  # type: ignore[arg-type]


def check_sums(found: Profile) -> None:
    step = found.step
    seen = np.flatnonzero(~np.isnan(step.start_s))
    starts = np.sort(step.start_s[seen])
    assert starts[0] == 0
    assert starts[-1] < step.iteration_s
    assert np.nansum(step.kernel_s) <= step.iteration_s * 1.0001
    assert (step.kernel_s[seen] > 0).all()


def test_all_operators_of_a_step_are_timed() -> None:
    found = measure(Small(), IMAGES)
    step = found.step
    assert not np.isnan(step.kernel_s).any()
    check_sums(found)
    assert (np.diff(step.start_s) > 0).all()  # the order of the capture is the one in which they ran
    kinds = [each.kind for each in step.workload.operators if each.phase is StepPhase.FORWARD]
    assert kinds == ["conv2d", "batch_norm", "relu", "conv2d", "__add__", "mean", "linear", "cross_entropy"]
    assert step.workload.layers[:2] == ("conv", "norm")


def test_the_quality_of_a_profile_is_reported() -> None:
    found = measure(Small(), IMAGES)
    assert found.steps == 6
    assert found.spread >= 0
    assert np.isfinite(found.overhead)
    assert found.load is not None
    assert found.facts["threads"] == str(torch.get_num_threads())
    assert found.step.device == "cpu"


@pytest.mark.parametrize(
    ("optimizer", "implementation", "kinds"),
    [
        ("sgd", "for-loop", {"mul_", "add_"}),
        ("adam", "for-loop", {"lerp_", "mul_", "addcmul_", "addcdiv_", "sqrt", "div", "add_"}),
        ("adamw", "foreach", {"_foreach_mul_", "_foreach_lerp_"}),
        ("adam", "fused", {"_fused_adam_"}),
    ],
)
def test_updates_are_timed(optimizer: str, implementation: str, kinds: set[str]) -> None:
    step = measure(Small(), IMAGES, optimizer=optimizer, implementation=implementation).step
    updates = [
        (each.kind, time)
        for each, time in zip(step.workload.operators, step.kernel_s, strict=True)
        if each.phase is StepPhase.UPDATE
    ]
    assert kinds <= {kind for kind, _ in updates}
    assert not np.isnan([time for _, time in updates]).any()


def test_accumulated_batches_are_timed() -> None:
    once, found = measure(Small(), IMAGES), measure(Small(), IMAGES, accumulation=3)
    assert len(found.step.workload.operators) > 2 * len(once.step.workload.operators)
    assert np.isnan(found.step.kernel_s).mean() < 0.05
    check_sums(found)


def test_recomputed_blocks_are_timed() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)))
    found = measure(model, [InputSpec(shape=(4, 8))], checkpointing=True)
    again = [place for place, each in enumerate(found.step.workload.operators) if each.get("recomputed", 0)]
    assert again
    assert not np.isnan(found.step.kernel_s[again]).any()


def test_random_tokens_are_below_their_limit() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    found = measure(model, [InputSpec(shape=(2, 5), dtype="int64", high=7)])
    assert [each.kind for each in found.step.workload.operators][:2] == ["embedding", "linear"]
    check_sums(found)


def test_a_recurrent_layer_is_one_operator() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            states: Tensor = self.inner(x)[0]
            return states[:, -1]

    found = measure(Last(), [InputSpec(shape=(2, 5, 3))])
    kinds = [each.kind for each in found.step.workload.operators]
    assert kinds.count("lstm") == 2
    assert np.nanargmax(found.step.kernel_s) in (kinds.index("lstm"), len(kinds) - 1 - kinds[::-1].index("lstm"))


def test_steps_that_take_too_long_are_refused() -> None:
    with pytest.raises(WorkloadError, match="Use a smaller batch"):
        profile(Small(), IMAGES, longest_s=0.0)


def test_a_copy_without_data_has_shapes_and_shared_tensors() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    shadow: Any = copy_without_data(model)
    assert {each.device.type for each in [*shadow.parameters(), *shadow.buffers()]} == {"meta"}
    assert shadow[2].weight is shadow[0].weight
    assert {each.device.type for each in model.parameters()} == {"cpu"}


@pytest.mark.parametrize(
    ("name", "on_device", "role"),
    [
        ("foretell/call/conv2d", False, (Role.CALL, "conv2d")),
        ("foretell/phase/update", False, (Role.PHASE, "update")),
        ("autograd::engine::evaluate_function: MmBackward0", False, (Role.NODE, "MmBackward0")),
        ("aten::convolution", False, (Role.COMPUTE, "convolution")),
        ("aten::linear", False, (Role.FREE, "linear")),
        ("aten::transpose", False, (Role.FREE, "transpose")),
        ("aten::empty_strided", False, (Role.FREE, "empty_strided")),
        ("aten::add_", False, (Role.COMPUTE, "add_")),
        ("cudaLaunchKernel", False, (Role.LAUNCH, "cudaLaunchKernel")),
        ("volta_sgemm_128x64_nn", True, (Role.KERNEL, "volta_sgemm_128x64_nn")),
        ("foretell/call/conv2d", True, None),  # the profiler draws marks on the device's timeline, too
        ("Optimizer.step#SGD.step", False, None),
    ],
)
def test_roles_of_events(name: str, on_device: bool, role: tuple[Role, str] | None) -> None:
    assert read_role(name, on_device=on_device) == role


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"compile": True}, "compile"),
        ({"channels_last": True}, "channels_last"),
        ({"mode": "generate"}, "mode"),
        ({"precision": "fp8"}, "fp8 is predicted, not measured"),
    ],
)
def test_what_is_predicted_only_is_refused(options: dict[str, object], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        measure(Small(), IMAGES, **options)


def test_inference_has_the_forward_phase_only() -> None:
    step = measure(Small(), IMAGES, mode="inference").step
    assert {each.phase for each in step.workload.operators} == {StepPhase.FORWARD}
    assert np.nansum(step.kernel_s) > 0
