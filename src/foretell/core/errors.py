"""Every error Foretell raises on purpose.

ForetellError
├── SpecError (ValueError)          an app file, parameter or option cannot be used
├── SiteError (ValueError)          a site file cannot be used
├── ProgramChangedError (ValueError) the program has changed since the stored runs were made
├── NotFoundError (LookupError)     no app, run, site, model or file of that name
├── ImportDataError (ValueError)    a table of runs or configurations cannot be read
├── NotEnoughRunsError              too few finished runs to fit a model
├── WorkloadError (ValueError)      a model's code cannot be built, or its training step cannot be captured
├── DeviceMemoryError (MemoryError) a replayed training step does not fit into the device's memory
├── InfeasibleError                 no allocation meets the limits
├── RunnerError (RuntimeError)      a run could not be started or tracked
│   ├── RunTakenError               another process makes the run in the same folder
│   └── SchedulerError              the scheduler refused, did not answer, or sent an unknown reply
├── OutputError (OSError)           a file or folder could not be written
├── MissingExtraError (ImportError) an optional library is needed for this
└── StoreError (RuntimeError)       the store could not be opened, read or written
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class ForetellError(Exception):
    """Anything that a user, a file or a machine can cause; its message says what to do next."""

    transient = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One thing wrong in a file: where, what was found, what was expected."""

    place: str
    found: str
    expected: str
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}: " if self.line is not None else ""
        return f"{line}{self.place}: found {self.found}; expected {self.expected}"


class _FileMistakesError(ForetellError, ValueError):
    def __init__(self, source: str, mistakes: Sequence[Mistake]) -> None:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        super().__init__("\n".join([f"{source}: {count}", *(f"  {mistake}" for mistake in mistakes)]))
        self.source = source
        self.mistakes = tuple(mistakes)


class SpecError(_FileMistakesError):
    """An app file, a parameter or an option cannot be used."""


class SiteError(_FileMistakesError):
    """A site file cannot be used."""


class ProgramChangedError(ForetellError, ValueError):
    """The program has changed since the stored runs were made."""

    def __init__(self, app: str, *, changes: Sequence[str], runs: int) -> None:
        made = "the stored run was" if runs == 1 else f"the {runs:,} stored runs were"
        listed = "".join(f"\n  {change}" for change in changes)
        super().__init__(
            f"what {app!r} runs has changed since {made} made:{listed}\n"
            "Use 'foretell generate --keep-runs' if those runs count for the new program as well, or "
            "'foretell generate --start-over' to set them aside: they stay stored, but are not used."
        )
        self.app = app
        self.changes = tuple(changes)
        self.runs = runs


class NotFoundError(ForetellError, LookupError):
    """Nothing has that name."""

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        known: Iterable[str] = (),
        similar: Iterable[str] | None = None,
        hint: str = "",
    ) -> None:
        """All known names are listed, or those that are similar if the others are too many."""
        names, nearest = sorted(known), tuple(similar or ())
        listed = f" Known: {', '.join(names)}." if names and similar is None else ""
        meant = f" Did you mean {_join_or(nearest)}?" if nearest else ""
        super().__init__(f"no {kind} named {name!r}.{meant or listed}{' ' + hint if hint else ''}")
        self.kind = kind
        self.name = name
        self.known = tuple(names)
        self.similar = nearest


def _join_or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class ImportDataError(ForetellError, ValueError):
    """A table of runs or configurations cannot be read."""


class NotEnoughRunsError(ForetellError):
    """Too few runs to fit a model."""

    def __init__(self, app: str, *, have: int, need: int, to_transfer: int | None = None) -> None:
        """``to_transfer`` configurations are enough with a transfer from another app."""
        less = f", or 'foretell build --transfer', which needs only {to_transfer} where a similar app is in the store"
        super().__init__(
            f"{app!r} has {have} finished configurations; {need} are needed. "
            f"Run 'foretell generate' or 'foretell runs import' for more{less if to_transfer else ''}."
        )
        self.app = app
        self.have = have
        self.need = need


class WorkloadError(ForetellError, ValueError):
    """A model's code cannot be built, or its training step cannot be captured."""


class DeviceMemoryError(ForetellError, MemoryError):
    """A replayed training step does not fit into the device's memory."""

    def __init__(self, message: str, *, requested_bytes: int, allocated_bytes: int, reserved_bytes: int) -> None:
        super().__init__(message)
        self.requested_bytes = requested_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes


class InfeasibleError(ForetellError):
    """No allocation meets the limits."""


class RunnerError(ForetellError, RuntimeError):
    """A run could not be started or tracked."""


class RunTakenError(RunnerError):
    """Another process makes the run in the same folder."""


class SchedulerError(RunnerError):
    """The scheduler refused, did not answer, or sent an unknown reply; ``transient`` if a retry may help."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class OutputError(ForetellError, OSError):
    """A file or folder could not be written."""


class MissingExtraError(ForetellError, ImportError):
    """An optional library is needed for this."""


class StoreError(ForetellError, RuntimeError):
    """The store could not be opened, read or written."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
