"""What every model of consumption promises."""

import abc
from collections.abc import Sequence
from typing import Self

from foretell.distributed.consumption import Case, Consumed, MeasuredJob


class ConsumptionModel(abc.ABC):
    """Tells what distributed training consumes from a step's operators and the setting.

    **Learning.** :meth:`fit` takes jobs, each with the case it is asked by; a cycle it lacks teaches nothing.
    **Answers.** :meth:`predict` gives one answer for a case, in order; metrics that no job taught are left out.
    **Repeatable.** The same seed and the same jobs give the same answers.
    """

    @abc.abstractmethod
    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Learn from jobs that ran."""

    @abc.abstractmethod
    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes."""
