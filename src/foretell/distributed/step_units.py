"""The units of a model, such as its layers: which operators of a step belong to each, forward and backward."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.core.workload import Floats, StepPhase, Workload

_NUMBERED = re.compile(r"((?:[^.]+\.)*?\d+)(?:\.|$)")  # a module of a list, and what is inside of it
FORWARD, BACKWARD, UPDATE = range(3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepUnits:
    """The unit and the pass of each operator. Units are in the order of the forward pass."""

    names: tuple[str, ...]
    numbered: tuple[bool, ...]  # whether a unit is an element of a list of modules, such as a layer
    unit_of: np.ndarray  # of each operator
    pass_of: np.ndarray  # FORWARD, BACKWARD (with what is computed again there) or UPDATE

    def find(self, layer: str, place: int) -> int:
        """The unit of a layer; of one that has none, that of the operator at a place."""
        name = name_unit(layer)
        return self.names.index(name) if name in self.names else int(self.unit_of[place])

    def add_up(self, seconds: Floats, part: int) -> Floats:
        """The sum of each unit in a pass."""
        chosen = self.pass_of == part
        sums: Floats = np.bincount(self.unit_of[chosen], weights=seconds[chosen], minlength=len(self.names)).astype(
            float
        )
        return sums


def find_units(workload: Workload) -> StepUnits:
    """The units of a step: each module of a list, and between them each module of the top level."""
    names = [name_unit(layer) for layer in workload.layers or ("",) * len(workload.operators)]
    passes = _find_passes(workload)
    names = _fill_names(names, passes)
    order = list(dict.fromkeys(names)) or [""]
    numbers = {name: place for place, name in enumerate(order)}
    return StepUnits(
        names=tuple(order),
        numbered=tuple(_NUMBERED.match(name) is not None for name in order),
        unit_of=np.array([numbers[name] for name in names], dtype=int),
        pass_of=passes,
    )


def name_unit(layer: str) -> str:
    """The unit that a layer is in; nothing for what is outside of all modules."""
    found = _NUMBERED.match(layer)
    return found[1] if found else ".".join(layer.split(".")[:2])


def _find_passes(workload: Workload) -> np.ndarray:
    """What comes after the first operator of the backward phase is part of the backward pass until the update."""
    phases = [operator.phase for operator in workload.operators]
    begins = next((place for place, phase in enumerate(phases) if phase is StepPhase.BACKWARD), len(phases))
    return np.array(
        [
            UPDATE if phase is StepPhase.UPDATE else BACKWARD if place >= begins else FORWARD
            for place, phase in enumerate(phases)
        ],
        dtype=int,
    )


def _fill_names(names: Sequence[str], passes: np.ndarray) -> list[str]:
    """What has no name, such as a loss, belongs to the unit that ran before it in the forward pass."""
    last = ""
    filled = []
    tail = next(
        (name for name, part in zip(reversed(names), passes[::-1].tolist(), strict=True) if part == FORWARD and name),
        "",
    )
    for name, part in zip(names, passes.tolist(), strict=True):
        if name and part == FORWARD:
            last = name
        filled.append(name or (last if part == FORWARD else tail))
    return filled
