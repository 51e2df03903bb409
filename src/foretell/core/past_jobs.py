"""Past jobs of a cluster's accounting, and what their requests wasted."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from foretell.core.app import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """Texts that many jobs share: who submitted them, and what they run."""

    cluster: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    work_directory: str = ""
    command: str = ""

    @property
    def id(self) -> int:
        """A key of 63 bits, the same on every machine."""
        texts = (self.cluster, self.user, self.account, self.partition, self.name, self.work_directory, self.command)
        text = "\0".join(texts).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1


class JobRow(NamedTuple):
    """A job of the past with its steps folded in: numbers only, ``None`` where accounting does not know.

    Moments are seconds of the cluster's own clock since 1970, as it showed them: accounting knows no time zones.
    ``job`` and ``task`` are those of ``JobID``: ``12_3`` and ``12+3`` are 12 and 3, all others have the task -1.
    ``submitted_at`` is the start where the submission is unknown, and 0 where both are. Every attempt of a requeued job
    has its own.
    ``cores``, ``gpus`` and ``memory_bytes`` are what was allocated on all nodes, ``peak_memory_bytes`` what was used
    of one.
    """

    job: int
    task: int
    submitted_at: int
    kind: int
    state: str
    started_at: int | None
    ended_at: int | None
    elapsed_s: int
    limit_s: int | None
    nodes: int
    cores: int
    gpus: int
    memory_bytes: int | None
    cpu_s: float | None
    peak_memory_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRows:
    """Jobs of one cluster, each as a :class:`JobRow` or a plain tuple like it, with the kinds that are new.

    ``missing`` are the fields that the text lacks. ``raw_ids`` are Slurm's own numbers of array elements by
    job, task and submission, as far as they are known.
    """

    cluster: str
    rows: Sequence[tuple[Any, ...]]
    kinds: Mapping[int, JobKind]
    missing: frozenset[str] = frozenset()
    raw_ids: Mapping[tuple[int, int, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The application of a kind of jobs, and the parameters found in its texts."""

    app: str
    parameters: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a text was read, in bytes and lines."""

    position: int = 0
    lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """Lines that were skipped for one reason, with the first of them; its number is 0 if unknown."""

    reason: str
    count: int
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryImport:
    """The result of an import. ``changed`` are jobs that are new or differ from what was stored."""

    sources: tuple[str, ...]
    lines: int
    jobs: int
    changed: int
    unfinished: int
    read_before: int = 0
    complaints: tuple[Complaint, ...] = ()

    @property
    def already_there(self) -> int:
        return self.jobs - self.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryApp:
    """An application of the history: how many jobs it had, how many completed, and when the last was submitted."""

    app: str
    jobs: int
    completed: int
    kinds: int
    users: int
    core_hours: float
    gpu_hours: float
    last_submitted_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Requested against used, of some jobs together.

    ``time_ratio`` is the median of requested over used time; ``cpu_used`` and ``memory_used`` are shares of what was
    allocated, over time. ``paid`` is what they cost, ``lost`` what of it went to jobs that did not complete.
    ``one_request`` is what a single request for each application would have cost, with retries paid; ``at_best`` what
    requests made in hindsight would have. Costs are money if the report has a ``currency``, else core-hours.
    """

    name: str
    jobs: int
    completed: int
    core_hours: float
    gpu_hours: float
    time_ratio: float | None
    cpu_used: float | None
    memory_used: float | None
    paid: float
    lost: float
    one_request: float
    at_best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WasteReport:
    """Waste by user, account, application or partition, largest bill first, and of all together.

    ``currency`` is empty where costs are core-hours. ``unpriced`` counts jobs, by partition, that the site has no
    price for: they are in the counts and shares, not in the costs.
    """

    by: str
    total: Waste
    rows: tuple[Waste, ...]
    currency: str = ""
    site: str = ""
    unpriced: Mapping[str, int] = field(default_factory=dict)
    unmeasured_memory: int = 0

    @property
    def unit(self) -> str:
        return self.currency or "core-hours"
