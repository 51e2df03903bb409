"""Runs chosen kernels on a device and times them: CUDA events on a GPU, the clock on a CPU."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.core.errors import WorkloadError
from foretell.core.workload import Operator, StepPhase
from foretell.steps.kernels.calibration_kernels import Chosen, Pass, count_bytes, is_update
from foretell.steps.kernels.kernel_calls import Attention, Convolution, KernelCall, MemoryPass, Product
from foretell.steps.kernels.launch_times import expect_launches
from foretell.steps.kernels.operator_kernels import split_kernels
from foretell.workloads.capture import capture
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.training_step import RealStep, copy_without_data, ignore_warnings

_TYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}
_REPEATS, _FEWEST = 7, 3
_SPAN_S = 4e-3  # of one repeat: several runs, so that the clock does not matter
_MOST_RUNS = 200  # of one repeat: the queue of a GPU holds about a thousand launches
_HELD, _LAUNCH_S = 1.5, 5e-6  # the GPU waits so many times as long as the host needs to launch all
_MOST_HELD_S = 20e-3
_MOST_COPIES = 8  # of the tensors, in turn, so that they are not in the cache
_TINY_LAYERS = 60
_WARM_S = 1.0

Run = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The median time of a kernel, and the interquartile range of its repeats as a share of it."""

    seconds: float
    spread: float
    repeats: int


def measure_kernel(chosen: Chosen, device: torch.device, *, l2_bytes: int = 0) -> Timing:
    """Time a kernel after a warm-up, on tensors that are not in the cache of the device.

    Raises:
        WorkloadError: The device cannot run it, or lacks the memory.
    """
    copies = min(_MOST_COPIES, max(1, math.ceil(2 * l2_bytes / max(count_bytes(chosen), 1.0))))
    tf32 = getattr(chosen, "precision", "") == "tf32"
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        with ignore_warnings():
            return _time([_build(chosen, device) for _ in range(copies)], device)
    except (RuntimeError, NotImplementedError, ValueError) as exc:
        raise WorkloadError(str(exc).splitlines()[0] if str(exc) else type(exc).__name__) from exc
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _time(runs: Sequence[Run], device: torch.device) -> Timing:
    on_gpu = device.type == "cuda"
    for run in runs[:2]:
        run()  # compiles, chooses an algorithm, touches the memory
    host_s = _time_host(runs, device) if on_gpu else 0.0

    def span(count: int) -> float:
        return _span_cuda(runs, count, device, host_s) if on_gpu else _span_cpu(runs, count)

    first = span(1)
    count = max(1, min(_MOST_RUNS, round(_SPAN_S / max(first, 1e-9)), round(_MOST_HELD_S / max(host_s, 1e-9))))
    repeats = _REPEATS if first < 10 * _SPAN_S else _FEWEST
    times = [span(count) for _ in range(repeats)]
    low, median, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    return Timing(seconds=median, spread=(high - low) / median, repeats=repeats)


def _time_host(runs: Sequence[Run], device: torch.device) -> float:
    """Seconds that the host takes to launch a run."""
    torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for run in (runs[0],) * _REPEATS:
        run()
    took = time.perf_counter() - begin
    torch.cuda.synchronize(device)
    return took / _REPEATS


def _span_cpu(runs: Sequence[Run], count: int) -> float:
    begin = time.perf_counter()
    for number in range(count):
        runs[number % len(runs)]()
    return (time.perf_counter() - begin) / count


def _span_cuda(runs: Sequence[Run], count: int, device: torch.device, host_s: float) -> float:
    """Seconds of a run on the device. It waits first until all are launched, so that the host does not count."""
    cuda: Any = torch.cuda  # parts of it have no types
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    cuda._sleep(int(_HELD * count * (host_s + _LAUNCH_S) * _find_clock_hz(device)))
    begin.record()
    for number in range(count):
        runs[number % len(runs)]()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / count


def _find_clock_hz(device: torch.device) -> float:
    """The highest clock by the driver; a usual one where PyTorch does not say it."""
    return float(getattr(torch.cuda.get_device_properties(device), "clock_rate", 0) or 1.7e6) * 1e3


def warm_up(device: torch.device, *, seconds: float = _WARM_S) -> None:
    """Work for a moment, so that a GPU raises its clock."""
    first = torch.randn(1024, 1024, device=device)
    end = time.perf_counter() + (seconds if device.type == "cuda" else 0.0)
    while True:
        (first @ first).sum().item()
        if time.perf_counter() >= end:
            return


# What runs


def _build(chosen: Chosen, device: torch.device) -> Run:
    match chosen:
        case Product():
            return _build_product(chosen, device)
        case Attention():
            return _build_attention(chosen, device)
        case Convolution():
            return _build_convolution(chosen, device)
        case Pass():
            return _build_update(chosen, device) if is_update(chosen.kind) else _build_pass(chosen, device)
    raise WorkloadError(f"{chosen!r} is not a kernel that can be measured")


def _draw(*shape: int, precision: str, device: torch.device) -> Tensor:
    dtype = _find_fp8(device) if precision == "fp8" else _TYPES[precision]
    return torch.randn(*shape, device=device).to(dtype)


def _find_fp8(device: torch.device) -> torch.dtype:
    """AMD's MI300 has a variant of its own."""
    properties = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    own = str(getattr(properties, "gcnArchName", "")).startswith("gfx94")
    return torch.float8_e4m3fnuz if own else torch.float8_e4m3fn


def _build_product(call: Product, device: torch.device) -> Run:
    first = _draw(call.many, call.rows, call.inner, precision=call.precision, device=device)
    second = _draw(call.many, call.columns, call.inner, precision=call.precision, device=device).transpose(1, 2)
    if call.precision == "fp8":
        one = torch.ones((), device=device)
        return lambda: torch._scaled_mm(first[0], second[0], scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    if call.many == 1:
        return lambda: first[0] @ second[0]
    return lambda: torch.bmm(first, second)


def _build_attention(call: Attention, device: torch.device) -> Run:
    query, key, value = (
        _draw(call.batch, heads, length, call.width, precision=call.precision, device=device)
        for heads, length in ((call.heads, call.queries), (call.key_heads, call.keys), (call.key_heads, call.keys))
    )
    given = [each.requires_grad_(call.backward) for each in (query, key, value)]

    def attend() -> Tensor:
        return functional.scaled_dot_product_attention(
            given[0], given[1], given[2], is_causal=call.causal, enable_gqa=call.key_heads != call.heads
        )

    return _go_back(attend(), given) if call.backward else attend


def _go_back(output: Tensor, given: Sequence[Tensor]) -> Run:
    """Only the backward pass, again and again."""
    gradient = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, given, gradient, retain_graph=True)


def _build_convolution(call: Convolution, device: torch.device) -> Run:
    layout = torch.channels_last if call.channels_last else torch.contiguous_format
    shape = (call.filters, call.channels // call.groups, *call.kernel)
    padding = [math.ceil(((out - 1) * call.stride + kernel - size) / 2) for size, out, kernel in _list_sides(call)]
    given = _draw(call.images, call.channels, *call.size_in, precision=call.precision, device=device)
    weight = _draw(*shape, precision=call.precision, device=device)
    given, weight = given.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
    stride = [call.stride, call.stride]

    def convolve() -> Tensor:
        return functional.conv2d(given, weight, stride=stride, padding=padding, groups=call.groups)

    if call.direction == "forward":
        return convolve
    mask = [call.direction == "data", call.direction == "weights", False]
    gradient = torch.randn_like(convolve())
    return lambda: torch.ops.aten.convolution_backward(
        gradient, given, weight, None, stride, padding, [1, 1], False, [0, 0], call.groups, mask
    )


def _list_sides(call: Convolution) -> list[tuple[int, int, int]]:
    return list(zip(call.size_in, call.size_out, call.kernel, strict=True))


class _PassModule(nn.Module):
    """An operator on parameters of its own, so that there is a backward pass."""

    first: nn.Parameter
    second: nn.Parameter
    weight: nn.Parameter
    bias: nn.Parameter
    labels: Tensor

    def __init__(self, chosen: Pass, device: torch.device | str) -> None:
        super().__init__()
        shape = _shape(chosen)
        dtype = _TYPES[chosen.precision]
        self.kind = chosen.kind
        self.first = nn.Parameter(torch.randn(*shape, device=device).to(dtype))
        self.second = nn.Parameter(torch.randn(*shape, device=device).to(dtype))
        self.labels = torch.zeros(shape[0], dtype=torch.int64, device=device)
        size: int = shape[1] if chosen.kind in _OF_IMAGES else shape[-1]
        self.weight = nn.Parameter(torch.ones(size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def forward(self, _given: Tensor) -> Tensor:
        return _FUNCTIONS[self.kind](self)


_FUNCTIONS: dict[str, Callable[[_PassModule], Tensor]] = {
    "relu": lambda own: functional.relu(own.first),
    "gelu": lambda own: functional.gelu(own.first),
    "silu": lambda own: functional.silu(own.first),
    "dropout": lambda own: functional.dropout(own.first, 0.1),
    "softmax": lambda own: functional.softmax(own.first, -1),
    "clone": lambda own: own.first.transpose(0, 1).clone(memory_format=torch.contiguous_format),
    "__add__": lambda own: own.first + own.second,
    "__mul__": lambda own: own.first * own.second,
    "layer_norm": lambda own: functional.layer_norm(own.first, own.weight.shape, own.weight, own.bias),
    "rms_norm": lambda own: functional.rms_norm(own.first, own.weight.shape, own.weight),
    "cross_entropy": lambda own: functional.cross_entropy(own.first, own.labels),
    "max_pool2d": lambda own: functional.max_pool2d(own.first, 2),
    "batch_norm": lambda own: functional.batch_norm(own.first, None, None, own.weight, own.bias, training=True),
}


_OF_IMAGES = ("batch_norm", "max_pool2d")


def _shape(chosen: Pass) -> tuple[int, ...]:
    """Of the tensor; or images, with sides of about the root of a row."""
    if chosen.kind not in _OF_IMAGES:
        return (chosen.rows, chosen.row)
    channels = 64
    side = max(1, math.isqrt(chosen.row))
    return (max(1, chosen.elements // (channels * side * side)), channels, side, side)


def _build_pass(chosen: Pass, device: torch.device) -> Run:
    module = _PassModule(chosen, device)
    given = torch.zeros(1, device=device)
    if not chosen.backward:
        return lambda: module(given)
    output = module(given)
    used = [each for each in module.parameters() if _is_used(each, output)]
    return _go_back(output, used)


def _is_used(parameter: Tensor, output: Tensor) -> bool:
    (found,) = torch.autograd.grad(output, [parameter], torch.ones_like(output), retain_graph=True, allow_unused=True)
    return found is not None


def _build_update(chosen: Pass, device: torch.device) -> Run:
    values, first, second = (
        [torch.rand(chosen.row, device=device) + 0.5 for _ in range(chosen.rows)] for _ in range(3)
    )
    return {
        "_foreach_mul_": lambda: torch._foreach_mul_(values, 0.999),
        "_foreach_lerp_": lambda: torch._foreach_lerp_(values, first, 0.1),
        "_foreach_sqrt": lambda: torch._foreach_sqrt(values),
        "_foreach_addcdiv_": lambda: torch._foreach_addcdiv_(values, first, second, value=1e-3),
    }[chosen.kind]


# What ran, as the models of kernels know it


def describe_kernel(chosen: Chosen) -> KernelCall:
    """The kernel as it is read from code; passes are captured, so that they have the costs of captured ones.

    Raises:
        WorkloadError: There is no such kernel in the captured step.
    """
    if not isinstance(chosen, Pass):
        return chosen
    found = [each for each in _capture_pass(replace(chosen, backward=False)) if _is_that(each, chosen)]
    for operator in found:
        for call in split_kernels(operator, settings={}):
            if isinstance(call, MemoryPass):
                return call
    raise WorkloadError(f"no kernel was read for {chosen.kind}, {'backward' if chosen.backward else 'forward'}")


def _is_that(operator: Operator, chosen: Pass) -> bool:
    phase = StepPhase.BACKWARD if chosen.backward else StepPhase.FORWARD
    return operator.kind == chosen.kind and operator.phase is (StepPhase.UPDATE if is_update(chosen.kind) else phase)


@cache
def _capture_pass(chosen: Pass) -> tuple[Operator, ...]:
    precision = "fp32" if chosen.precision == "fp32" else f"pure-{chosen.precision}"
    options = StepOptions(loss="mse", precision=precision, optimizer="adamw" if is_update(chosen.kind) else "sgd")
    module = _ManyTensors(chosen) if is_update(chosen.kind) else _PassModule(chosen, "meta")
    return tuple(capture(module, [InputSpec(shape=(1,))], options=options).operators)


class _ManyTensors(nn.Module):
    """As many parameters as an optimizer updates at once."""

    def __init__(self, chosen: Pass) -> None:
        super().__init__()
        self.all = nn.ParameterList(torch.empty(chosen.row, device="meta") for _ in range(chosen.rows))

    def forward(self, given: Tensor) -> Tensor:
        return torch.stack([each.sum() for each in self.all]).sum() * given


# The host


def measure_host(device: torch.device, *, layers: int = _TINY_LAYERS) -> float:
    """How often longer this host takes to launch a step than an undisturbed one is expected to.

    A step of tiny layers waits for the host only, on any GPU.
    """
    modules = [module for _ in range(layers) for module in (nn.Linear(8, 8), nn.ReLU())]
    model, inputs = nn.Sequential(*modules), [InputSpec(shape=(2, 8))]
    options = StepOptions(loss="sum")
    expected = expect_launches(capture(copy_without_data(model), inputs, options=options)).total_s
    step = RealStep(model, inputs, options, device=device, seed=0)
    times = []
    with ignore_warnings():
        for _ in range(_REPEATS + 3):
            begin = time.perf_counter()
            step.run()
            step.wait()
            times.append(time.perf_counter() - begin)
    return float(np.median(times[3:])) / expected


def describe_gpu(device: torch.device) -> dict[str, str]:
    """What may change the times: the library and its versions, and the clock."""
    facts = {"torch": str(torch.__version__), "threads": str(torch.get_num_threads())}
    if device.type == "cuda":
        facts["cuda"] = str(torch.version.cuda or torch.version.hip)
        facts["clock_mhz"] = f"{_find_clock_hz(device) / 1e6:.0f}"
    return facts
