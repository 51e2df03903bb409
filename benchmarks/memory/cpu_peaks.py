"""The exact part: what lives at once in a training step, against the same step on this CPU with real tensors.

Measured are the tensors that exist, and in a second row what PyTorch's profiler counts: also the buffers inside of the
kernels of a CPU, which a GPU has not.
"""

import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.memory.cpu_networks import Network, list_networks
from benchmarks.memory.live_bytes import LiveBytes
from benchmarks.memory.results import Result, measure_errors
from foretell.memory.pipeline_stages import find_live_peak
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.optimizers import build_optimizer
from foretell.workloads.step_options import StepOptions
from foretell.workloads.training_step import compute_loss

OPTIONS = StepOptions(optimizer="adamw")
_WORST = 5  # networks that are named


class Peaks(NamedTuple):
    """Bytes of a network's step."""

    predicted: int
    tensors: int
    profiled: int


def judge_cpu() -> list[Result]:
    """All networks; those of each library; and all by the profiler."""
    warnings.simplefilter("ignore")
    found: dict[str, Peaks] = {}
    libraries: dict[str, list[str]] = {}
    for network in list_networks():
        torch.manual_seed(0)
        trace = capture_memory(network.build(), network.inputs, options=OPTIONS, on_gpu=False)
        peaks = found[network.name] = Peaks(find_live_peak(trace), *measure_peaks(network))
        libraries.setdefault(network.library, []).append(network.name)
        errors = [f"{peaks.predicted / each - 1:+.2%}" for each in peaks[1:]]
        print(f"{network.name}: {', '.join(errors)}", file=sys.stderr, flush=True)
    tensors = {name: (peaks.predicted, peaks.tensors) for name, peaks in found.items()}
    profiled = {name: (peaks.predicted, peaks.profiled) for name, peaks in found.items()}
    return [
        _judge("tensors that live", "all", tensors, wanted={"median": 1.0, "p95": 1.0}),
        *(_judge("tensors that live", of, {name: tensors[name] for name in names}) for of, names in libraries.items()),
        _judge("and buffers of CPU kernels", "all", profiled),
    ]


def _judge(what: str, group: str, pairs: dict[str, tuple[int, int]], **facts: Any) -> Result:
    errors = {name: abs(predicted / measured - 1) for name, (predicted, measured) in pairs.items()}
    worst = sorted(errors, key=lambda name: -errors[name])[:_WORST]
    return Result(
        what=what,
        group=group,
        cases=len(pairs),
        figures=measure_errors(*zip(*pairs.values(), strict=True)),
        note=", ".join(f"{name} {errors[name]:.1%}" for name in worst if errors[name] > 0.005),
        **facts,
    )


def measure_peaks(network: Network) -> tuple[int, int]:
    """The peak of the second step: of the tensors that exist, and of all that the profiler counts."""
    model = network.build()
    optimizer = build_optimizer(list(model.parameters()), OPTIONS)
    args = kwargs = out = loss = None
    for _step in range(2):
        live = LiveBytes()
        live.hold(_list_tensors([list(model.parameters()), list(model.buffers()), args, kwargs, out, loss]))
        live.hold(each.grad for each in model.parameters() if each.grad is not None)
        live.hold(_list_tensors([list(states.values()) for states in optimizer.state.values()]))
        there = live.measure()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler, live:
            args, kwargs = _draw(network)
            optimizer.zero_grad()
            out = model(*args, **kwargs)
            loss = compute_loss(out, OPTIONS.loss, build_target=_build_target)
            torch.autograd.backward(loss)
            optimizer.step()
    return live.peak, there + _find_peak(profiler)


def _find_peak(profiler: Any) -> int:
    events = profiler.profiler.kineto_results.events()
    changes = [each for each in events if each.name() == "[memory]" and each.device_type() == DeviceType.CPU]
    live = peak = 0
    for change in sorted(changes, key=lambda each: each.start_ns()):
        live += change.nbytes()
        peak = max(peak, live)
    return peak


def _list_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from _list_tensors(part)


def _draw(network: Network) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """A batch; its targets are as in the capture, but of values that a loss accepts."""
    drawn = {
        each.name: torch.randint(0, each.high, each.shape) if each.high is not None else torch.randn(each.shape)
        for each in network.inputs
    }
    return [drawn[name] for name in drawn if name is None], {name: drawn[name] for name in drawn if name is not None}


def _build_target(result: torch.Tensor, shape: tuple[int, ...], classes: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64) if classes else torch.zeros_like(result)
