"""Chosen kernels run and are timed; the same code measures GPUs by CUDA events."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from foretell.core.errors import WorkloadError
from foretell.steps.kernels.calibration_kernels import Chosen, Pass
from foretell.steps.kernels.calibration_runs import (
    Timing,
    _find_fp8,
    _span_cuda,
    _time,
    describe_kernel,
    measure_host,
    measure_kernel,
)
from foretell.steps.kernels.kernel_calls import Attention, Convolution, MemoryPass, Product
from foretell.steps.kernels.operator_kernels import split_kernels
from foretell.workloads.capture import capture
from foretell.workloads.step_options import InputSpec, StepOptions

CPU = torch.device("cpu")
PRODUCT = Product(rows=64, columns=48, inner=32)
ATTENTION = Attention(batch=1, heads=4, key_heads=2, queries=32, keys=32, width=16, causal=True, precision="fp32")
CONVOLUTION = Convolution(
    images=2, channels=8, filters=16, groups=2, size_in=(15, 15), size_out=(8, 8), kernel=(3, 3), stride=2
)
KERNELS: list[Chosen] = [
    PRODUCT,
    replace(PRODUCT, many=3, precision="bf16"),
    replace(PRODUCT, precision="fp8"),
    ATTENTION,
    replace(ATTENTION, backward=True, precision="bf16"),
    *(replace(CONVOLUTION, direction=direction) for direction in ("forward", "data", "weights")),
    replace(CONVOLUTION, channels_last=True, precision="bf16", groups=1),
    *(
        Pass(kind=kind, rows=64, row=64, backward=backward, precision=precision)
        for kind in (
            "layer_norm",
            "gelu",
            "softmax",
            "relu",
            "batch_norm",
            "dropout",
            "__mul__",
            "silu",
            "rms_norm",
            "cross_entropy",
            "max_pool2d",
        )
        for backward in (False, True)
        for precision in ("fp32", "bf16")
    ),
    *(Pass(kind=kind, rows=64, row=64) for kind in ("__add__", "clone")),
    *(Pass(kind=kind, rows=4, row=64) for kind in ("_foreach_addcdiv_", "_foreach_mul_", "_foreach_lerp_")),
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.steps.kernels.calibration_runs._SPAN_S", 1e-4)


@pytest.mark.parametrize("chosen", KERNELS, ids=str)
def test_each_kernel_is_timed_and_described(chosen: Chosen) -> None:
    timing = measure_kernel(chosen, CPU)
    assert 0 < timing.seconds < 1
    assert timing.spread >= 0
    call = describe_kernel(chosen)
    if not isinstance(chosen, Pass):
        assert call == chosen
        return
    assert isinstance(call, MemoryPass)
    assert (call.kind, call.backward, call.elements) == (chosen.kind, chosen.backward, chosen.elements)
    item = 4 if chosen.precision == "fp32" else 2
    assert call.bytes_moved >= item * chosen.elements  # it is read, or written


def test_a_larger_kernel_takes_longer() -> None:
    small, large = (measure_kernel(Product(rows=size, columns=size, inner=size), CPU) for size in (16, 512))
    assert large.seconds > 3 * small.seconds


def test_a_pass_is_described_as_the_one_of_a_model() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Linear(8, 64, device="meta"), nn.LayerNorm(64, device="meta")

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.norm(self.first(given))
            return found

    workload = capture(Norm(), [InputSpec(shape=(32, 8))], options=StepOptions(loss="mse"))
    for operator in workload.operators:
        if operator.kind == "layer_norm":
            backward = operator.phase == "backward"
            (expected,) = split_kernels(operator, settings=workload.settings)
            assert describe_kernel(Pass(kind="layer_norm", rows=32, row=64, backward=backward)) == expected


def test_a_kernel_that_the_device_cannot_run_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("CUDA error: no kernel image\nmore lines")

    monkeypatch.setattr(torch, "bmm", fail)
    with pytest.raises(WorkloadError, match=r"^CUDA error: no kernel image$"):
        measure_kernel(replace(PRODUCT, many=2), CPU)


def test_switches_of_pytorch_are_as_before() -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    assert isinstance(measure_kernel(replace(PRODUCT, precision="tf32"), CPU), Timing)
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_the_host_is_compared_with_an_undisturbed_one() -> None:
    assert 0.02 < measure_host(CPU, layers=5) < 500


def test_a_gpu_is_timed_by_its_events_behind_a_held_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the calls that one would get, in their order."""
    calls: list[str] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            calls.append("record")

        def synchronize(self) -> None:
            calls.append("wait")

        def elapsed_time(self, _end: "Event") -> float:
            return 6.0  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: calls.append("hold" if cycles > 1e4 else "short"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: object())
    runs = [lambda: calls.append("first"), lambda: calls.append("second")]
    seconds = _span_cuda(runs, 3, torch.device("cuda"), 1e-5)
    assert seconds == pytest.approx(2e-3)
    assert calls == ["hold", "record", "first", "second", "first", "record", "wait"]


def test_a_slow_host_is_not_measured_as_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches that take long are held longer, and are fewer, so that the GPU never waits for one."""
    held: list[tuple[int, float]] = []

    def span(_runs: object, count: int, _device: object, host_s: float) -> float:
        held.append((count, host_s))
        return 1e-6

    monkeypatch.setattr("foretell.steps.kernels.calibration_runs._SPAN_S", 4e-3)
    monkeypatch.setattr("foretell.steps.kernels.calibration_runs._span_cuda", span)
    for host_s, count in ((5e-6, 200), (1e-3, 20)):
        held.clear()
        monkeypatch.setattr("foretell.steps.kernels.calibration_runs._time_host", lambda *_args, s=host_s: s)
        assert _time([lambda: None], torch.device("cuda")).seconds == 1e-6
        assert held[-1] == (count, host_s)


@pytest.mark.parametrize(("name", "dtype"), [("gfx942", torch.float8_e4m3fnuz), ("", torch.float8_e4m3fn)])
def test_each_maker_has_its_fp8(monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(gcnArchName=name))
    assert _find_fp8(torch.device("cuda")) is dtype
