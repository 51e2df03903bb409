"""Kernels of the recorded training iterations (ETS): convolutions and passes in single precision."""

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.ets.traces import Trace, read_traces
from benchmarks.gpus.kernel_observations import Observation
from benchmarks.gpus.results import DATA
from foretell.core.devices import get_device
from foretell.core.workload import Operator
from foretell.steps.kernels.kernel_calls import Convolution, KernelCall, Product
from foretell.steps.kernels.operator_kernels import split_kernels

GPUS = ("T4", "2080Ti")
SOURCE = "ets"
# Recorded without their shapes, which the rows around do not give either.
_UNKNOWN = frozenset({"index", "new_zeros", "multi_head_attention_forward"})
_GUESSED = frozenset({"clone", "cat"})  # shapes of the rows around, which are wrong where they make it too fast


def read_recorded(gpus: Sequence[str] = GPUS) -> list[Observation]:
    """One observation for each distinct operator of a device: the median of its times."""
    return [one for gpu in gpus for one in _gather(gpu, read_traces(gpu, folder=DATA / "ets"))]


def _gather(gpu: str, traces: Iterable[Trace]) -> list[Observation]:
    seconds: dict[Operator, list[float]] = {}
    models: dict[Operator, set[str]] = {}
    for trace in traces:
        for operator, time in zip(trace.step.workload.operators, trace.step.kernel_s.tolist(), strict=True):
            if time > 0:
                seconds.setdefault(operator, []).append(time)
                models.setdefault(operator, set()).add(trace.model)
    found = (_observe(gpu, each, float(np.median(times)), models[each]) for each, times in seconds.items())
    return [one for one in found if one is not None]


def _observe(gpu: str, operator: Operator, seconds: float, models: Iterable[str]) -> Observation | None:
    calls = split_kernels(operator, settings={})
    if operator.kind in _UNKNOWN or not calls or any(isinstance(call, Product) for call in calls):
        return None
    if operator.kind in _GUESSED and operator.bytes_moved / get_device(gpu).bandwidth_bytes > seconds:
        return None
    return Observation(
        calls=calls,
        device=gpu,
        seconds=seconds,
        source=SOURCE,
        label=_name(operator, calls),
        models=frozenset(models),
    )


def _name(operator: Operator, calls: Sequence[KernelCall]) -> str:
    first = calls[0]
    if not isinstance(first, Convolution):
        return f"{operator.kind} {operator.phase}"
    shape = "dense" if first.groups == 1 else ("depthwise" if first.groups == first.channels else "grouped")
    return f"{shape} convolution {operator.phase}"
