"""What was learned from whole models about steps of kernels: levels and errors, in one file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.intervals import QuantileSpread
from foretell.core.model_files import load_model, read_numbers, read_rising
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.shipped_models import find_weights
from foretell.steps.kernels.step_intervals import QUANTILES, StepSpread
from foretell.steps.kernels.step_levels import CLASSES, StepLevels

_REMEDY = "install Foretell again"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCorrections:
    """Levels of groups of kernels, and errors of predictions of unseen models."""

    kind: ClassVar[str] = "step-corrections"
    levels: StepLevels = field(default_factory=StepLevels)
    spread: StepSpread = field(default_factory=StepSpread)
    seen: Mapping[str, str] = field(default_factory=dict)  # DEVICE/CLASS of whole models, and the architecture

    def find_evidence(self, device: Device, precision: str | None) -> Evidence:
        """What whole models say of a device in a precision; without one, as for passes, in any."""
        classes = {"half", "single"} if precision is None else {CLASSES[precision]}
        if any(f"{device.name}/{name}" in self.seen for name in classes):
            return Evidence.MEASURED
        alike = {key.rpartition("/")[2] for key, each in self.seen.items() if each == device.architecture}
        return Evidence.SIMILAR if alike & classes else Evidence.FIGURES

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """As JSON values."""
        spreads = {name: spread.round() for name, spread in self.spread.spreads.items()}
        levels = {name: round(level, 4) for name, level in self.levels.levels.items()}
        return {"levels": levels, "spreads": spreads, "seen": dict(self.seen)}, {}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Those of a state.

        Raises:
            ValueError, TypeError, LookupError: The state is not one of such corrections.
        """
        spreads = {
            str(name): QuantileSpread(quantiles=tuple(read_rising(values, count=QUANTILES).tolist()))
            for name, values in record["spreads"].items()
        }
        return cls(
            levels=StepLevels(levels=read_numbers(record["levels"])),
            spread=StepSpread(spreads=spreads),
            seen={str(name): str(architecture) for name, architecture in record["seen"].items()},
        )


@cache
def load_corrections() -> StepCorrections:
    """The shipped ones; none if none ship."""
    path = find_weights("step")
    if not path.exists():
        return StepCorrections()
    found, _facts = load_model(path, [StepCorrections], remedy=_REMEDY)
    return found
