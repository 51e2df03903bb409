"""What is predicted of the memory of a step: how much, what for, where it fits, and what would make it fit."""

from dataclasses import dataclass

from foretell.core.memory import MemoryTrace
from foretell.core.prediction import Estimate
from foretell.core.warning import PredictionWarning
from foretell.memory.usage import MemoryUsage
from foretell.steps.step_results import LeftOutDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFit:
    """Whether a step fits a device, and the largest batch that does."""

    device: str
    usable_bytes: int
    needed: Estimate  # as nvidia-smi shows it
    risk: float  # the chance that it does not fit
    fits: bool  # with at most the risk that was allowed
    largest_batch: int | None = None  # that fits with at most that risk; 0 if none does, None if it was not asked for
    longest_sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that needs less memory."""

    name: str
    options: str  # of the command
    needed: Estimate
    freed_bytes: int
    fits: bool
    time_ratio: float | None = None  # of the time for the same number of examples, after and before
    trains_all: bool = True  # the parameters that were trained before


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPrediction:
    """The predicted memory of a step on one GPU."""

    usage: MemoryUsage
    needed: Estimate  # bytes of the device, as nvidia-smi shows them: reserved and context
    context_bytes: int  # of CUDA and its libraries, outside of PyTorch's allocator
    workspace_bytes: int  # of cuDNN for convolutions, inside of it
    risk_allowed: float
    devices: tuple[DeviceFit, ...] = ()
    left_out: tuple[LeftOutDevice, ...] = ()
    remedies: tuple[Remedy, ...] = ()  # for a device where it does not fit
    remedies_for: str = ""  # that device
    host_bytes: int | None = None  # of the job, where a script was read
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def trace(self) -> MemoryTrace:
        """The step."""
        return self.usage.trace

    @property
    def reserved_bytes(self) -> int:
        """Bytes that PyTorch's allocator takes from the device."""
        return self.usage.reserved_bytes + self.workspace_bytes
