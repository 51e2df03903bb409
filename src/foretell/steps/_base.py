"""The promises of every model of training steps."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.prediction import Estimate
from foretell.core.workload import Floats, MeasuredStep, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The time of a step, of each of its operators, and of the gap after each operator.

    A model that predicts only the whole step divides its time by the costs of the operators.
    """

    iteration_s: float
    kernel_s: Floats
    gap_s: Floats
    # Of methods that know what a kernel is.
    least_s: float = 0.0  # the device cannot do it faster
    evidence: Mapping[str, float] = field(default_factory=dict)  # shares of the work: measured, similar, figures
    limits: Mapping[str, float] = field(default_factory=dict)  # shares of the iteration: compute, memory, host
    mfu: float | None = None  # of the device's dense peak for the precision
    unknown: float = 0.0  # share of the iteration of operators whose cost is unknown


class StepModel(abc.ABC):
    """Is fitted on measured steps of one device and predicts the times of other steps on it.

    **Unknown times.** Operators whose times were not recorded are NaN in a measured step; their work is in the gap
    before the next operator. A model must not count that gap as overhead of the framework.
    **Unknown operators.** An operator of a kind that was never measured is predicted from what it computes and moves.
    **Order.** Times are in the order of the workload's operators, in seconds, finite and not negative.
    **Repeatable.** The same steps and the same seed give the same predictions.
    **Files.** :meth:`from_state` of what :meth:`to_state` returns is a model with the same predictions.
    """

    kind: ClassVar[str]  # the name of the method, also in model files

    @classmethod
    def build(cls, device: Device, *, seed: int = 0) -> Self:
        """A model of this device that is not fitted yet."""
        return cls()

    @classmethod
    def from_figures(cls, device: Device) -> Self | None:
        """A model by the public figures of the device alone; None if the method needs measurements."""
        return None

    @abc.abstractmethod
    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Fit the model; returns itself."""

    @abc.abstractmethod
    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""

    @abc.abstractmethod
    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The fitted model as JSON values and arrays."""

    @classmethod
    @abc.abstractmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model of a state.

        Raises:
            ValueError, TypeError, LookupError: The state is not one of such a model.
        """


class StepTimer(Protocol):
    """Predicts the times of steps."""

    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
        ...


@runtime_checkable
class Refinable(Protocol):
    """A fitted model that can use profiles of the network that is predicted."""

    def refine(self, profiles: Sequence[MeasuredStep]) -> StepTimer:
        """A model that also uses these profiles; this one does not change."""
        ...


@runtime_checkable
class Bounding(Protocol):
    """A model that knows the interval of each of its predictions."""

    def bound(self, times: StepTimes, level: float) -> Estimate:
        """The iteration with its interval."""
        ...


@runtime_checkable
class Transferable(Protocol):
    """A model fitted on one device that can predict another one."""

    def transfer(self, device: Device, steps: Sequence[MeasuredStep]) -> StepTimer:
        """A model of the other device, from its figures and the steps measured on it, if any."""
        ...
