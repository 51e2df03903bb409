"""Measures a training step on the device of this machine, operator by operator.

The time of an iteration is the median of steps without a profiler. Operators are timed in other steps, under PyTorch's
profiler: with a light mark around each call of the forward phase, and no marks in the backward phase and the update.
The overhead of the profiler is removed from the gaps between operators, so that both add up to the same time.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch._C._autograd import DeviceType
from torch._C._profiler import _RecordFunctionFast as Mark
from torch.autograd.profiler import profile as torch_profiler  # torch.profiler imports a compiler: seconds
from torch.overrides import TorchFunctionMode

from foretell.core.errors import Mistake, SpecError, WorkloadError
from foretell.core.workload import StepPhase, Workload
from foretell.workloads.capture import capture
from foretell.workloads.measurement_files import ALLOCATED, RESERVED, Profile
from foretell.workloads.operator_costs import normalize_name
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.step_timing import Event, PlainStep, Role, StepTiming, build_profile, time_steps
from foretell.workloads.training_step import RealStep, checkpointed, copy_without_data, find_device, ignore_warnings

WARM_UP = 3
STEPS = (3, 40)  # fewest and most plain steps, before and again after the profiled ones
SECONDS = 0.5  # of plain steps, within these limits
PROFILED = (3, 15)
PROFILED_SHARE = 0.4  # of the time of plain steps

_PREFIX = "foretell/"
_NODE = "autograd::engine::evaluate_function: "
_NOT_MARKED = frozenset({"__get__", "__set__", "dim", "size", "numel", "stride", "is_floating_point", "requires_grad_"})
_FREE = (
    "empty",
    "new_empty",
    "resize_",
    "set_",
    "detach",
    "lift",
    "record_stream",
    "_local_scalar_dense",
    "_unsafe_view",
)


def profile(
    model: nn.Module,
    inputs: Sequence[InputSpec],
    *,
    options: StepOptions | None = None,
    name: str = "",
    device: torch.device | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
    longest_s: float | None = None,
) -> Profile:
    """Measure a few real steps of a model.

    Raises:
        WorkloadError: The model does not accept the inputs, or a step takes longer than ``longest_s``.
    """
    options, device = options or StepOptions(), device or find_device()
    _check_measurable(options)
    workload = capture(copy_without_data(model), inputs, options=options, name=name or type(model).__name__)
    load = find_load()
    step = RealStep(model, inputs, options, device=device, seed=seed)
    with ignore_warnings(), ExitStack() as stack:
        if options.checkpointing:
            stack.enter_context(checkpointed(step.model, lambda _name: _Calls(), recompute=options.recompute))
        first = _warm_up(step, longest_s)
        before = _run_plain(step, _count(first, seconds / 2, STEPS))
        memory = _find_peaks(device)
        timings = _run_profiled(step, workload, _count(first, seconds * PROFILED_SHARE, PROFILED))
        plain = before + _run_plain(step, _count(first, seconds / 2, STEPS))
    facts = {"threads": str(torch.get_num_threads()), "torch": str(torch.__version__), **memory}
    return build_profile(workload, timings, plain, device=name_device(device), load=load, facts=facts)


def _check_measurable(options: StepOptions) -> None:
    """Refuse what a few eager steps do not show."""
    expected = {"mode": ("training", "inference"), "compile": ("no",), "channels_last": ("no",)}
    mistakes = [
        Mistake(place=name, found=options.settings[name], expected=f"{' or '.join(words)}: only these are measured")
        for name, words in expected.items()
        if options.settings[name] not in words
    ]
    if options.precision == "fp8":
        mistakes.append(Mistake(place="precision", found="fp8", expected="another one: fp8 is predicted, not measured"))
    if mistakes:
        raise SpecError("the measured step", mistakes)


def _find_peaks(device: torch.device) -> dict[str, str]:
    """The most memory that PyTorch's allocator gave and took in this process, on a GPU: bytes, as facts."""
    if device.type != "cuda":
        return {}
    peaks = {ALLOCATED: torch.cuda.max_memory_allocated(device), RESERVED: torch.cuda.max_memory_reserved(device)}
    return {name: str(size) for name, size in peaks.items()}


def name_device(device: torch.device) -> str:
    """The name of the device by its driver; a CPU is named ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def find_load() -> float:
    """The load of the machine: mean number of runnable processes in the last minute."""
    return os.getloadavg()[0]


def _count(step_s: float, seconds: float, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return min(high, max(low, round(seconds / max(step_s, 1e-6))))


def _warm_up(step: RealStep, longest_s: float | None) -> float:
    """Run a few steps; returns the seconds of the last one."""
    took = 0.0
    for _ in range(WARM_UP):
        begin = time.perf_counter()
        step.run()
        step.wait()
        took = time.perf_counter() - begin
        if longest_s is not None and took > longest_s:
            raise WorkloadError(f"a step takes {took:.3g} s; expected {longest_s:g} s at most. Use a smaller batch.")
    return took


def _run_plain(step: RealStep, count: int) -> list[PlainStep]:
    if step.device.type != "cpu":
        begin = time.perf_counter()
        for _ in range(count):
            step.run()
        step.wait()
        return [PlainStep(step_s=(time.perf_counter() - begin) / count)]
    return [_run_timed(step) for _ in range(count)]


def _run_timed(step: RealStep) -> PlainStep:
    clock = time.perf_counter
    begin = clock()
    forward = backward = 0.0
    step.zero()
    last = clock()
    for _ in range(step.options.accumulation):
        loss = step.forward()
        middle = clock()
        step.backward(loss)
        forward += middle - last
        last = clock()
        backward += last - middle
    step.update()
    end = clock()
    return PlainStep(
        step_s=end - begin,
        phases_s={StepPhase.FORWARD: forward, StepPhase.BACKWARD: backward, StepPhase.UPDATE: end - last},
    )


# Profiled steps


class _Calls(TorchFunctionMode):
    """Marks the outermost calls of the model's code for the profiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Mark a call."""
        mark = _find_mark(func)
        if mark is None:
            return func(*args, **(kwargs or {}))
        with mark:
            return func(*args, **(kwargs or {}))


_marks: dict[Any, str | None] = {}


def _find_mark(func: Any) -> Mark | None:
    try:
        name = _marks[func]
    except KeyError:
        packet = getattr(func, "overloadpacket", func)
        operation = getattr(packet, "__name__", type(packet).__name__)
        name = _marks[func] = None if operation in _NOT_MARKED else f"{_PREFIX}call/{normalize_name(operation)}"
    return None if name is None else Mark(name)


def _run_profiled(step: RealStep, workload: Workload, count: int) -> list[StepTiming]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # Kineto prints when it starts and ends
    with torch_profiler(
        use_kineto=True, use_device=None if step.device.type == "cpu" else step.device.type
    ) as profiler:
        for _ in range(count):
            with Mark(f"{_PREFIX}step/"):
                _run_marked(step)
        step.wait()
    return time_steps(read_events(profiler), workload)


def _run_marked(step: RealStep) -> None:
    step.zero()
    for _ in range(step.options.accumulation):
        with _mark(StepPhase.FORWARD), _Calls():
            loss = step.forward()
        with _mark(StepPhase.BACKWARD):
            step.backward(loss)
    with _mark(StepPhase.UPDATE):
        step.update()


def _mark(phase: StepPhase) -> Mark:
    return Mark(f"{_PREFIX}phase/{phase}")


def read_events(profiler: torch_profiler) -> Iterator[Event]:
    """The events of PyTorch's profiler that are needed, with their roles."""
    assert profiler.kineto_results is not None
    for event in profiler.kineto_results.events():
        found = read_role(event.name(), on_device=event.device_type() != DeviceType.CPU)
        if found is not None:
            role, name = found
            begin = event.start_ns()
            yield Event(
                role,
                name,
                begin,
                begin + event.duration_ns(),
                event.start_thread_id(),
                event.sequence_nr(),
                event.correlation_id(),
            )


def read_role(name: str, *, on_device: bool) -> tuple[Role, str] | None:
    """The role of an event of PyTorch's profiler and its name; None if it is not needed."""
    if name.startswith(_PREFIX):
        role, _, rest = name.removeprefix(_PREFIX).partition("/")
        return None if on_device else (Role(role), rest)
    if on_device:
        return Role.KERNEL, name
    if name.startswith(_NODE):
        return Role.NODE, name.removeprefix(_NODE)
    if name.startswith("aten::"):
        operation = name.removeprefix("aten::")
        return Role.COMPUTE if _computes(operation) else Role.FREE, operation
    if name.startswith(("cuda", "hip", "cu")):
        return Role.LAUNCH, name
    return None


_computing: dict[str, bool] = {}


def _computes(operation: str) -> bool:
    if operation not in _computing:
        _computing[operation] = _find_computing(operation)
    return _computing[operation]


def _find_computing(operation: str) -> bool:
    """Whether an ATen call computes itself, rather than by calling others."""
    if operation.startswith(_FREE):
        return False
    packet = getattr(torch.ops.aten, operation, None)
    if packet is None:
        return True
    overloads = [getattr(packet, each) for each in packet.overloads()]
    if any(overload.is_view for overload in overloads):
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [overload.name() for overload in overloads if torch._C._dispatch_has_kernel(overload.name())]
    return not any(has(name, "CompositeImplicitAutograd") for name in names)
