"""The promises of every model of kernel times."""

import abc
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.workload import Floats

Call = TypeVar("Call")


class Evidence(StrEnum):
    """What a prediction for a device was learned from, the strongest first."""

    MEASURED = "measured"  # kernels of this device
    SIMILAR = "similar"  # kernels of devices of its architecture
    FIGURES = "figures"  # its public figures, and kernels of other devices


class KernelTimeModel(abc.ABC, Generic[Call]):
    """Predicts the times of kernels of one kind on any device, also on one that was never measured.

    **Physics.** The time is a bound by the figures of the device (peak of the type, bandwidth, units, cache, launch)
    times a bounded factor that is learned from the figures of the kernel and of the device.
    **Unknown figures.** A device with some figures missing (0) is predicted as well as the others allow.
    **Evidence.** :meth:`find_evidence` says what is known of a device in a precision, also after :meth:`calibrate`.
    **Speed.** A whole step is one call of :meth:`predict`; thousands of kernels take milliseconds, no scikit-learn.
    **Repeatable.** The same measurements and the same seed give the same predictions.
    **Spread.** ``spreads_`` holds, by evidence, the spread of logarithms of errors of a kernel, from devices that were
    left out (that of a normal distribution with the same 90 % interval); ``"measured level"`` and so on is the part
    that all kernels of a device share. It is empty where it was not learned.
    **Files.** :meth:`from_state` of what :meth:`to_state` returns is a model with the same predictions.
    """

    @abc.abstractmethod
    def fit(self, calls: Sequence[Call], devices: Sequence[Device], seconds: Floats) -> Self:
        """Fit on measured calls, each on its device; returns itself."""

    @abc.abstractmethod
    def predict(self, calls: Sequence[Call], device: Device) -> Floats:
        """Seconds of each call."""

    @abc.abstractmethod
    def find_evidence(self, device: Device, precision: str) -> Evidence:
        """What the predictions for this device in this precision were learned from."""

    @abc.abstractmethod
    def calibrate(self, calls: Sequence[Call], device: Device, seconds: Floats) -> Self:
        """A model that also knows these few measurements of one device; this one does not change."""

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
