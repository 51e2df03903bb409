"""What every model of training steps promises."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from foretell.core.workload import Floats, MeasuredStep, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """How long a step takes, and each of its operators with the gap after it.

    A model that knows only the whole shares it out by the operators' costs.
    """

    iteration_s: float
    kernel_s: Floats
    gap_s: Floats


class StepModel(abc.ABC):
    """Learns from measured steps of one device, and tells how long other steps take on it.

    **Unknown times.** Operators whose times were not recorded are not a number in a measured step; their work is in
    the gap before the next one. A model must not take that gap for the framework's.
    **Unknown words.** An operator of a kind that was never measured is answered for by what it computes and moves.
    **Order.** Times come in the order of the workload's operators, seconds, finite and not negative.
    **Repeatable.** The same steps and the same seed give the same answers.
    """

    @abc.abstractmethod
    def fit(self, steps: Sequence[MeasuredStep]) -> Self:
        """Learn; returns itself."""

    @abc.abstractmethod
    def predict(self, workloads: Sequence[Workload]) -> list[StepTimes]:
        """The times of each step."""
