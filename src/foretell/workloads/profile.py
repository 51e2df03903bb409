"""How long a training step takes on the device at hand, operator by operator.

The iteration's time is the median of steps that nobody looks at. Operators are timed in other steps, under the
framework's own profiler: a light mark around each call of the forward phase, nothing of ours in the backward phase and
the update. What looking on costs is taken from the gaps between operators, so that both add up to the same.
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
from torch.autograd.profiler import (
    profile as watch,
)  # torch.profiler's own imports a compiler first, which takes seconds
from torch.overrides import TorchFunctionMode

from foretell.core.errors import WorkloadError
from foretell.core.workload import StepPhase, Workload
from foretell.workloads.capture import capture
from foretell.workloads.operator_names import spell
from foretell.workloads.profile_files import Profile
from foretell.workloads.real_step import RealStep, build_shadow, checkpointed, find_device, quiet
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.step_timing import BareStep, Event, Role, StepTiming, build_profile, time_steps

WARM_UP = 3
STEPS = (3, 40)  # bounds of how many before, and again after those that are watched
SECONDS = 0.5  # of steps that nobody looks at, within these bounds
WATCHED = (3, 15)
WATCHED_SHARE = 0.4  # of the same

_PREFIX = "foretell/"
_NODE = "autograd::engine::evaluate_function: "
_SILENT = frozenset({"__get__", "__set__", "dim", "size", "numel", "stride", "is_floating_point", "requires_grad_"})
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
    """A few real steps of a model, measured.

    Raises:
        WorkloadError: The model cannot take the inputs, or a step takes longer than ``longest_s``.
    """
    options, device = options or StepOptions(), device or find_device()
    workload = capture(build_shadow(model), inputs, options=options, name=name or type(model).__name__)
    load = find_load()
    step = RealStep(model, inputs, options, device=device, seed=seed)
    with quiet(), ExitStack() as stack:
        if options.checkpointing:
            stack.enter_context(checkpointed(step.model, _Calls))
        first = _warm_up(step, longest_s)
        before = _run_bare(step, _count(first, seconds / 2, STEPS))
        timings = _run_watched(step, workload, _count(first, seconds * WATCHED_SHARE, WATCHED))
        bare = before + _run_bare(step, _count(first, seconds / 2, STEPS))
    facts = {"threads": str(torch.get_num_threads()), "torch": str(torch.__version__)}
    return build_profile(workload, timings, bare, device=name_device(device), load=load, facts=facts)


def name_device(device: torch.device) -> str:
    """The device by its maker's name; the host has none here."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def find_load() -> float:
    """Processes that wanted to run in the last minute."""
    return os.getloadavg()[0]


def _count(step_s: float, seconds: float, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return min(high, max(low, round(seconds / max(step_s, 1e-6))))


def _warm_up(step: RealStep, longest_s: float | None) -> float:
    """Seconds of the last of a few steps."""
    took = 0.0
    for _ in range(WARM_UP):
        begin = time.perf_counter()
        step.run()
        step.wait()
        took = time.perf_counter() - begin
        if longest_s is not None and took > longest_s:
            raise WorkloadError(f"a step takes {took:.3g} s; expected {longest_s:g} s at most. Use a smaller batch.")
    return took


def _run_bare(step: RealStep, count: int) -> list[BareStep]:
    if step.device.type != "cpu":
        begin = time.perf_counter()
        for _ in range(count):
            step.run()
        step.wait()
        return [BareStep(step_s=(time.perf_counter() - begin) / count)]
    return [_run_timed(step) for _ in range(count)]


def _run_timed(step: RealStep) -> BareStep:
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
    return BareStep(
        step_s=end - begin,
        phases_s={StepPhase.FORWARD: forward, StepPhase.BACKWARD: backward, StepPhase.UPDATE: end - last},
    )


# Watched steps


class _Calls(TorchFunctionMode):
    """Marks the outermost calls of the model's code."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Mark one."""
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
        word = getattr(packet, "__name__", type(packet).__name__)
        name = _marks[func] = None if word in _SILENT else f"{_PREFIX}call/{spell(word)}"
    return None if name is None else Mark(name)


def _run_watched(step: RealStep, workload: Workload, count: int) -> list[StepTiming]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its library tells users when it begins and ends
    with watch(use_kineto=True, use_device=None if step.device.type == "cpu" else step.device.type) as watching:
        for _ in range(count):
            with Mark(f"{_PREFIX}step/"):
                _run_marked(step)
        step.wait()
    return time_steps(read_events(watching), workload)


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


def read_events(watching: watch) -> Iterator[Event]:
    """What the framework's profiler saw, in our words."""
    assert watching.kineto_results is not None
    for seen in watching.kineto_results.events():
        found = read_role(seen.name(), on_device=seen.device_type() != DeviceType.CPU)
        if found is not None:
            role, name = found
            begin = seen.start_ns()
            yield Event(
                role,
                name,
                begin,
                begin + seen.duration_ns(),
                seen.start_thread_id(),
                seen.sequence_nr(),
                seen.correlation_id(),
            )


def read_role(name: str, *, on_device: bool) -> tuple[Role, str] | None:
    """What an event of the framework's profiler tells of, and our name for it."""
    if name.startswith(_PREFIX):
        role, _, rest = name.removeprefix(_PREFIX).partition("/")
        return None if on_device else (Role(role), rest)
    if on_device:
        return Role.KERNEL, name
    if name.startswith(_NODE):
        return Role.NODE, name.removeprefix(_NODE)
    if name.startswith("aten::"):
        word = name.removeprefix("aten::")
        return Role.COMPUTE if _computes(word) else Role.FREE, word
    if name.startswith(("cuda", "hip", "cu")):
        return Role.LAUNCH, name
    return None


_known: dict[str, bool] = {}


def _computes(word: str) -> bool:
    if word not in _known:
        _known[word] = _find_computing(word)
    return _known[word]


def _find_computing(word: str) -> bool:
    """Whether it works on data itself; what is made of other calls leaves it to them."""
    if word.startswith(_FREE):
        return False
    packet = getattr(torch.ops.aten, word, None)
    if packet is None:
        return True
    overloads = [getattr(packet, each) for each in packet.overloads()]
    if any(overload.is_view for overload in overloads):
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [overload.name() for overload in overloads if torch._C._dispatch_has_kernel(overload.name())]
    return not any(has(name, "CompositeImplicitAutograd") for name in names)
