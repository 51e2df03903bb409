"""Who has taken a run on, so that nobody else makes it: this process, or a batch that the scheduler has."""

import abc
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from foretell.core.batch import Batch
from foretell.core.errors import StoreError
from foretell.core.run import Claim, Launch, Owner, Run, RunSpec, State
from foretell.measure.machine import OWNER
from foretell.schedulers.slurm.batch_journal import BatchJournal, is_job_id
from foretell.stores import RunStore


class Claims(abc.ABC):
    """Takes runs on, and keeps what came of them only while they are its own; ``retry``: final ones taken on anew.

    ``lost`` are the ids of runs that somebody else had taken on first.
    """

    def __init__(self, store: RunStore, *, retry: frozenset[State]) -> None:
        self.lost: set[str] = set()
        self._store = store
        self._retry = retry

    @abc.abstractmethod
    def take(self, spec: RunSpec, *, anew: frozenset[State] = frozenset()) -> bool:
        """Whether the run is ours to start, or in these states to be replaced."""

    @abc.abstractmethod
    def owns(self, claim: Claim) -> bool:
        """Whether a claim in the store is one of these."""

    @abc.abstractmethod
    def keep(self, runs: Collection[Run]) -> set[str]:
        """Store runs that ended; the ids of those that were ours."""

    @abc.abstractmethod
    def release(self, specs: Iterable[RunSpec]) -> None:
        """Leave runs to others."""

    @abc.abstractmethod
    def beat(self) -> None:
        """Give a sign of life."""

    @abc.abstractmethod
    def mark(self, launch: Launch) -> Launch:
        """The launch, so marked that what is left of it can be told from others'."""


class OwnClaims(Claims):
    """Of a process: they are given up when it ends."""

    def __init__(self, store: RunStore, owner: Owner, *, retry: frozenset[State]) -> None:
        super().__init__(store, retry=retry)
        self._owner = owner

    def take(self, spec: RunSpec, *, anew: frozenset[State] = frozenset()) -> bool:
        is_ours = self._store.claim(spec, self._owner, retry=self._retry | anew)
        if not is_ours:
            self.lost.add(spec.id)
        return is_ours

    def owns(self, claim: Claim) -> bool:
        return claim.owner.token == self._owner.token

    def keep(self, runs: Collection[Run]) -> set[str]:
        return self._store.finish_all(runs, self._owner)

    def release(self, specs: Iterable[RunSpec]) -> None:
        with suppress(StoreError):  # why we let go matters more, and claims of a process that ended are given up
            for spec in specs:
                self._store.release(spec.id, self._owner)

    def beat(self) -> None:
        self._store.heartbeat(self._owner)

    def mark(self, launch: Launch) -> Launch:
        return replace(launch, environment={**launch.environment, OWNER: self._owner.token})


class BatchClaims(Claims, BatchJournal):
    """Of batches: they are made as a batch is written down, and last until its runs have ended."""

    def __init__(self, store: RunStore, *, retry: frozenset[State]) -> None:
        super().__init__(store, retry=retry)
        self._owners: dict[str, Owner] = {}

    def take(self, spec: RunSpec, *, anew: frozenset[State] = frozenset()) -> bool:
        return True  # it is only when its batch is opened

    def owns(self, claim: Claim) -> bool:
        owner = self._owners.get(claim.spec.id)
        return owner is not None and owner.token == claim.owner.token

    def keep(self, runs: Collection[Run]) -> set[str]:
        by_owner: dict[Owner, list[Run]] = defaultdict(list)
        for run in runs:
            by_owner[self._owners[run.id]].append(run)
        kept = (self._store.finish_all(ended, owner) for owner, ended in by_owner.items())
        return set().union(*kept)

    def release(self, specs: Iterable[RunSpec]) -> None:
        pass  # what the scheduler has, it keeps

    def beat(self) -> None:
        pass  # the scheduler knows whether its jobs live

    def mark(self, launch: Launch) -> Launch:
        return launch

    def adopt(self, batch: Batch) -> None:
        """Keep the runs of a batch that somebody opened before."""
        self._owners |= dict.fromkeys(batch.run_ids, batch.owner)

    def open(self, batch: Batch, specs: Sequence[RunSpec]) -> Batch:
        opened = self._store.open_batch(batch, specs, retry=self._retry)
        self.lost |= {spec.id for spec in specs}.difference(opened.run_ids)
        self.adopt(opened)
        return opened

    def find(self, batch: Batch) -> Batch | None:
        kept = next((kept for kept in self._store.batches(batch.app) if kept.id == batch.id), None)
        if kept is None:
            return None
        return replace(batch, job_id=kept.job_id if is_job_id(kept.job_id) else "")  # nothing else may have changed

    def keep_job_id(self, batch: Batch, job_id: str) -> None:
        self._store.keep_job_id(batch.id, job_id)

    def forget(self, batch: Batch) -> None:
        self._store.release_all(batch.owner)
