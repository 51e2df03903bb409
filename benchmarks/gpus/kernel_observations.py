"""Measured kernels as the models of kernel times learn them: calls that ran together, and how long they took."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from foretell.core.devices import Device, get_device
from foretell.core.workload import Floats
from foretell.steps.kernels.kernel_calls import Convolution, KernelCall, MemoryPass

Predict: TypeAlias = Callable[[Sequence[Any], Device], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The time of some kernels, one after the other, on a device."""

    calls: tuple[KernelCall, ...]
    device: str  # its name in the catalogue
    seconds: float
    source: str
    label: str  # what was measured
    models: frozenset[str] = frozenset()  # in which it was recorded

    @property
    def convolves(self) -> bool:
        return isinstance(self.calls[0], Convolution)


def group_by_device(observations: Iterable[Observation]) -> dict[Device, list[Observation]]:
    """The observations of each device."""
    found: dict[str, list[Observation]] = {}
    for one in observations:
        found.setdefault(one.device, []).append(one)
    return {get_device(name): some for name, some in found.items()}


def predict_observations(observations: Sequence[Observation], device: Device, predict: Predict) -> Floats:
    """Seconds of each observation, all of them of that device."""
    sizes = np.array([len(one.calls) for one in observations])
    seconds = predict([call for one in observations for call in one.calls], device)
    return np.asarray(np.add.reduceat(seconds, np.cumsum(sizes) - sizes))


def share_out(observations: Sequence[Observation], device: Device, predict: Predict) -> Floats:
    """Seconds of each call: those of its observation, divided as predicted."""
    seconds = predict([call for one in observations for call in one.calls], device)
    scale = np.array([one.seconds for one in observations]) / predict_observations(observations, device, predict)
    return np.asarray(seconds * np.repeat(scale, [len(one.calls) for one in observations]))


def predict_with(models: Mapping[type, Predict]) -> Predict:
    """Predicts calls of several kinds, each by its model."""

    def predict(calls: Sequence[Any], device: Device) -> Floats:
        found = np.zeros(len(calls))
        for kind, model in models.items():
            chosen = [place for place, call in enumerate(calls) if isinstance(call, kind)]
            if chosen:
                found[chosen] = model([calls[place] for place in chosen], device)
        return found

    return predict


def draw(observations: Iterable[Observation], most: int, *, seed: int = 0) -> list[Observation]:
    """At most so many of each device, source and label."""
    groups: dict[tuple[str, str, str], list[Observation]] = {}
    for one in observations:
        groups.setdefault((one.device, one.source, one.label), []).append(one)
    random = np.random.default_rng(seed)
    return [some[place] for some in groups.values() for place in sorted(random.permutation(len(some))[:most].tolist())]


def build_pass(kind: str, elements: float, row: float, moved: float, *, kernels: int = 1) -> MemoryPass:
    """A forward pass with one operation for each element."""
    return MemoryPass(
        kind=kind,
        elements=int(elements),
        row=int(row),
        bytes_moved=float(moved),
        flops=float(elements),
        kernels=kernels,
    )
