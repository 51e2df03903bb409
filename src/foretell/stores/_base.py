"""What every store promises."""

import abc
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from foretell.core.app import App, Value
from foretell.core.batch import Batch
from foretell.core.model_card import ModelRecord
from foretell.core.run import Claim, Owner, Run, RunSpec, State


class RunReader(abc.ABC):
    """Reads apps, runs and fitted models.

    **Same value back.** What comes out equals what went in, with three exceptions: times come back in UTC (one without
    a zone is taken as local time), figures that are not finite come back as not measured, and characters that no
    database can hold are escaped in logs and reasons.
    **Order.** Runs are listed in the order in which they were first stored.
    **Threads.** A reader or store may be used by several threads at once.

    Raises (everywhere):
        StoreError: if the store cannot be read or written, or cannot hold a value; ``transient`` if trying again
            may help.
    """

    @property
    def private(self) -> bool:
        """Whether nobody but this user can have written it: only then what it says of an app may be run."""
        return False

    @abc.abstractmethod
    def get_app(self, name: str) -> App:
        """The app of that name.

        Raises:
            NotFoundError: if there is none.
        """

    @abc.abstractmethod
    def app_names(self) -> list[str]:
        """The names of all apps, sorted."""

    @abc.abstractmethod
    def claims(self, app: str) -> list[Claim]:
        """The runs of an app that somebody has taken on and not finished."""

    @abc.abstractmethod
    def batches(self, app: str) -> list[Batch]:
        """The batches of an app that still have runs to finish, oldest first."""

    @abc.abstractmethod
    def runs(
        self,
        app: str,
        *,
        states: Collection[State] | None = None,
        limit: int | None = None,
        offset: int = 0,
        newest_first: bool = False,
        version: int | None = None,
    ) -> list[Run]:
        """The runs of an app, all or a page of them; ``states=None`` means any state, ``version=None`` any version."""

    @abc.abstractmethod
    def runs_with(
        self, app: str, parameters: Collection[Mapping[str, Value]], *, states: Collection[State]
    ) -> list[Run]:
        """The runs of an app in these states that have one of these sets of parameters, names in the same order."""

    @abc.abstractmethod
    def get_run(self, id_prefix: str) -> Run:
        """The run with that id, or the only one whose id begins so.

        Raises:
            NotFoundError: if there is none, or several (its ``known`` lists the first of them).
        """

    @abc.abstractmethod
    def known_ids(self, app: str) -> dict[str, State]:
        """The id and state of every run of an app."""

    @abc.abstractmethod
    def count_runs(self, app: str, *, version: int | None = None) -> dict[State, int]:
        """How many runs of an app (or of one version of it) are in each state; states without runs are left out."""

    @abc.abstractmethod
    def find_model(self, app: str) -> ModelRecord | None:
        """An app's fitted model, without its ``run_ids``: reading it must not cost more the more runs are behind it."""

    @abc.abstractmethod
    def model_run_ids(self, app: str) -> tuple[str, ...]:
        """The ids of the runs behind an app's fitted model."""

    @abc.abstractmethod
    def count_received_jobs(self, app: str) -> int:
        """How many past jobs that a model can learn from were ever added to an app, or changed; it only grows."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class RunStore(RunReader):
    """Keeps apps, runs and fitted models.

    **One run, one owner.** Of any number of concurrent callers of :meth:`claim`, on any number of machines, exactly one
    gets the run. Whatever an owner does to its claim later (:meth:`finish`, :meth:`release`) happens only while the
    claim is still its own.
    **All or nothing.** A method that raises has changed nothing; only :meth:`add_runs` keeps the batches before.
    """

    @abc.abstractmethod
    def save_app(self, app: App) -> None:
        """Keep an app, in place of one of the same name."""

    @abc.abstractmethod
    def claim(self, spec: RunSpec, owner: Owner, *, retry: Collection[State] = ()) -> bool:
        """Take a run on: true if it is now this owner's.

        False if somebody is running it or it is final already, unless that final state is one of ``retry``: then what
        came of it is forgotten and it is taken on anew.
        """

    @abc.abstractmethod
    def heartbeat(self, owner: Owner) -> None:
        """Give a sign of life for all of the owner's claims."""

    @abc.abstractmethod
    def release(self, run_id: str, owner: Owner) -> bool:
        """Forget a claim, so that the run can be taken on again; false if it is not this owner's."""

    @abc.abstractmethod
    def finish(self, run: Run, owner: Owner) -> bool:
        """Keep what came of a claimed run; false, and nothing kept, if the claim is not this owner's."""

    @abc.abstractmethod
    def finish_all(self, runs: Collection[Run], owner: Owner) -> set[str]:
        """As :meth:`finish` for many, at once; the ids of those that were kept."""

    @abc.abstractmethod
    def open_batch(self, batch: Batch, specs: Sequence[RunSpec], *, retry: Collection[State] = ()) -> Batch:
        """Keep a batch and take on its runs in its name, at once; it comes back with those that it got (:meth:`claim`).

        One that got none is not kept.
        """

    @abc.abstractmethod
    def keep_job_id(self, batch_id: str, job_id: str) -> None:
        """Keep what the scheduler called a batch."""

    @abc.abstractmethod
    def release_all(self, owner: Owner) -> int:
        """Forget all claims of an owner; how many there were."""

    @abc.abstractmethod
    def add_runs(self, runs: Iterable[Run]) -> int:
        """Keep runs that happened elsewhere; how many were new.

        They are stored batch by batch, and ids already there are left alone: after an interruption, add all again.
        """

    @abc.abstractmethod
    def delete_runs(self, ids: Iterable[str]) -> int:
        """Forget runs, claimed ones too; how many there were."""

    @abc.abstractmethod
    def save_model(self, record: ModelRecord) -> None:
        """Keep an app's fitted model, in place of the one before."""
