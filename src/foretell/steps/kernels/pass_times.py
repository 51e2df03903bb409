"""Predicts the times of passes over memory on any GPU."""

from collections.abc import Sequence
from typing import ClassVar

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.corrected_times import CorrectedTimeModel, Figures
from foretell.steps.kernels.kernel_calls import MemoryPass
from foretell.steps.kernels.learned_factors import Path
from foretell.steps.kernels.pass_physics import PassFigures, find_class


class PassTimeModel(CorrectedTimeModel[MemoryPass]):
    """Launches, and bytes at the bandwidth of memory or of L2; corrected by kind and size.

    Levels of passes, for :meth:`with_levels`: ``pass``; ``pass/CLASS`` of a class of kinds (``element``, ``copy``,
    ``normalization``, ``row_norm``, ``softmax``, ``loss``, ``reduction``, ``window``, ``gather``, ``random``,
    ``update``); ``pass/KIND`` of an operator, such as ``pass/batch_norm``; each also with ``/forward`` or
    ``/backward`` behind it.
    """

    kind = "memory_pass"
    most_log = 1.0
    tree_settings: ClassVar = {
        "max_iter": 250,
        "learning_rate": 0.07,
        "max_leaf_nodes": 24,
        "min_samples_leaf": 20,
        "l2_regularization": 2.0,
        "max_features": 0.5,
    }

    def build_figures(self, calls: Sequence[MemoryPass], device: Device) -> PassFigures:
        return PassFigures(calls, device)

    def describe(self, calls: Sequence[MemoryPass], figures: Figures) -> Floats:
        assert isinstance(figures, PassFigures)
        return figures.describe()

    def name_path(self, call: MemoryPass, device: Device) -> Path:
        return ("pass", find_class(call), _name_phase(call), call.kind)

    def name_levels(self, call: MemoryPass, device: Device) -> tuple[str, ...]:
        phase = _name_phase(call)
        names = dict.fromkeys(("pass", f"pass/{find_class(call)}", f"pass/{call.kind}"))
        return tuple(name + behind for name in names for behind in ("", f"/{phase}"))

    def name_regimes(self, calls: Sequence[MemoryPass], figures: Figures) -> list[Path]:
        assert isinstance(figures, PassFigures)
        return [(limit, find_class(call), call.kind) for limit, call in zip(figures.name_limits(), calls, strict=True)]

    def find_precision(self, call: MemoryPass, device: Device) -> str:
        return "any"

    def find_evidence(self, device: Device, precision: str) -> Evidence:
        """The type of the numbers does not matter: bytes are bytes."""
        return super().find_evidence(device, "any")


def _name_phase(call: MemoryPass) -> str:
    return "backward" if call.backward else "forward"
