"""Measured steps of whole models, which are read from their code."""

from collections.abc import Callable
from dataclasses import dataclass, field

from foretell.core.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLabel:
    """A measured step. ``read`` gives its operators, or None if the code cannot be read."""

    source: str  # of the measurement: timm, torchvision, neusight, or a file of the user's
    model: str
    family: str
    device: str
    mode: str
    precision: str
    batch: int
    seconds: float
    read: Callable[[], Workload | None] = field(repr=False)
    extra_s: float = 0.0  # part of the measurement that is no part of the step, such as copies of the input


def name_case(label: StepLabel) -> str:
    """Which step it is of which model, on any device."""
    return f"{label.source} {label.model} {label.mode} {label.precision} {label.batch}"
