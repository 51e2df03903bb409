"""Where batches are written down before they are submitted, so that no crash loses or doubles one."""

import abc
from collections.abc import Sequence
from dataclasses import replace

from foretell.core.batch import Batch
from foretell.core.run import RunSpec


class Ledger(abc.ABC):
    """Keeps batches. What it was told outlives this process, as far as its kind can."""

    @abc.abstractmethod
    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        """Write a batch down before it is submitted; it comes back with those runs that are its own to make."""

    @abc.abstractmethod
    def find(self, batch: Batch) -> Batch | None:
        """The batch as it is written down now; ``None`` if nobody waits for any of its runs any more."""

    @abc.abstractmethod
    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        """Write down what the scheduler called it."""

    @abc.abstractmethod
    def forget(self, batch: Batch) -> None:
        """Forget a batch that will not be submitted: its runs are anybody's."""


class Unwritten(Ledger):
    """Keeps nothing: batches are known to this process only."""

    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        return replace(batch, run_ids=tuple(spec.id for spec in specs))

    def find(self, batch: Batch) -> Batch | None:
        return batch

    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        pass

    def forget(self, batch: Batch) -> None:
        pass
