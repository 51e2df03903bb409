"""One configuration on one allocation, and what came of it."""

import enum
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from foretell.core.app import Scale, Value
from foretell.core.warning import PredictionWarning


class State(enum.StrEnum):
    """How a run stands. Only COMPLETED teaches as it is; the two limits teach as "longer than" and "more than".

    INTERRUPTED is nobody's fault (a node failed, a job was preempted): it teaches nothing, and is made again unasked.
    """

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def final(self) -> bool:
        return self not in (State.QUEUED, State.RUNNING)


TEACHING = (State.COMPLETED, State.TIMED_OUT, State.OUT_OF_MEMORY)
_LONGEST_LINE = 120  # characters
_LOG_HEAD = re.compile(r"^--- ", re.MULTILINE)  # before each log in the tail of several
_TELLING_LOGS = ("stderr.log", "setup.log", "stdout.log")
ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")  # colours, cursor

RETRIABLE = frozenset({State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.CANCELLED, State.INTERRUPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What is asked of a site. ``memory_bytes`` is per node; ``None`` means what the site gives by default.

    ``node_type`` names the site's node type: clusters of one site may each have a partition of the same name.
    """

    cores: int = 1
    memory_bytes: int | None = None
    gpus: int = 0
    nodes: int = 1
    partition: str | None = None
    walltime_s: float | None = None
    node_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One configuration on one allocation, to be run by one ``version`` of the app's program (:class:`App`)."""

    app: str
    parameters: Mapping[str, Value]
    allocation: Allocation = field(default_factory=Allocation)
    scale: Scale = Scale.FULL_SCALE
    repetition: int = 0
    version: int = 0

    @property
    def configuration(self) -> str:
        """A key that repetitions share; the sweep it belongs to does not matter."""
        allocation = self.allocation
        size = [allocation.cores, allocation.memory_bytes, allocation.gpus, allocation.nodes]
        resources = [*size, allocation.partition, allocation.node_type]
        version = [self.version] if self.version else []  # so that ids of a first version are as they always were
        key = [self.app, sorted(self.parameters.items()), resources, *version]
        text = json.dumps(key, ensure_ascii=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def id(self) -> str:
        """A key for this run, the same on every machine: what was stored under it need not run again."""
        return f"{self.configuration}-{self.repetition}"


def find_repetition(spec: RunSpec, is_taken: Callable[[str], bool]) -> RunSpec:
    """The first repetition from this one on whose id is not taken."""
    while is_taken(spec.id):
        spec = replace(spec, repetition=spec.repetition + 1)
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a run's whole process tree used. ``None`` where it could not be measured."""

    elapsed_s: float
    cpu_s: float | None = None
    peak_memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    context_switches: int | None = None
    gpu_utilisation: float | None = None
    gpu_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts of the machine a run ran on; ``load`` is that of others during the run, in cores."""

    hostname: str = ""
    cpu_model: str = ""
    cores: int | None = None
    cpu_mhz: float | None = None
    memory_bytes: int | None = None
    gpu_model: str | None = None
    gpus: int = 0
    load: float | None = None
    extra: Mapping[str, Value] = field(default_factory=dict)


BENCH_VERSION = 1  # of the fixed work: whatever changes how long it takes is a new version
BENCH_FIGURES = ("bench_s", "bench_core_s", "bench_cores_s", "bench_memory_s", "bench_disk_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """How long a machine takes for fixed work: medians over ``repeats``, lower is faster.

    ``bench_s`` is the geometric mean of core and memory. ``spread`` is, for each figure, how far the middle half of the
    repeats lies apart, as a share of the median. ``busy_cores`` is what others used meanwhile; ``warnings`` say why the
    figures should not be used. Figures of different versions are of different work: they are never compared.
    """

    bench_version: int
    bench_s: float
    bench_core_s: float
    bench_cores_s: float
    bench_memory_s: float
    bench_disk_s: float | None
    spread: Mapping[str, float]
    repeats: int
    busy_cores: float
    warnings: tuple[PredictionWarning, ...]
    hostname: str
    cpu_model: str
    cores: int
    software: str
    measured_at: datetime

    @property
    def figures(self) -> dict[str, float]:
        """What runs on this machine carry of it, as facts of their machine."""
        known = {name: getattr(self, name) for name in BENCH_FIGURES if getattr(self, name) is not None}
        return {"bench_version": self.bench_version, **known}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who is running a run, precisely enough to tell whether they still are.

    ``token`` is unique to one process; ``started_at`` is that process's start, so a reused pid is not mistaken for it.
    A scheduler's batch owns its runs with no process behind it: pid 0.
    """

    token: str
    hostname: str
    boot_id: str
    pid: int
    started_at: float

    @property
    def is_batch(self) -> bool:
        return self.pid == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of a run specification.

    A run that was a scheduler's job has its ``job_id``, and in ``allocated`` what it was given, which is what is paid.
    """

    spec: RunSpec
    state: State
    usage: Usage | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    exit_code: int | None = None
    log_tail: str = ""
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    source: str = "local"
    job_id: str = ""
    allocated: Allocation | None = None

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def last_line(self) -> str:
        """The last line that it wrote to its stderr, or else to another log: of a run that failed, mostly why."""
        tail = ESCAPE_SEQUENCE.sub("", self.log_tail)
        heads = [part.partition("\n") for part in _LOG_HEAD.split(tail)[1:]]
        parts: dict[str, str] = {name: text for name, _, text in heads} or {"": tail}
        for name in (*_TELLING_LOGS, *parts):
            lines = [line.strip() for line in parts.get(name, "").splitlines() if line.strip()]
            if lines:
                return lines[-1][-_LONGEST_LINE:]
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run somebody has taken on: its specification, who, and when they last gave a sign of life."""

    spec: RunSpec
    owner: Owner
    heartbeat_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A run specification made ready to start: words, environment, folders. Nothing in it needs a shell.

    ``inherited`` are variables of this process that the run gets although they are Foretell's own.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    working_directory: str = "."
    run_directory: str = "."
    setup: tuple[tuple[str, ...], ...] = ()
    cleanup: tuple[tuple[str, ...], ...] = ()
    time_limit_s: float | None = None
    log_limit_bytes: int | None = None


# A run as a row of a table: the names of its columns beside its parameters, ``phase_`` and ``machine_`` ones.
RESOURCE_COLUMNS = ("cores", "memory_bytes", "gpus", "nodes", "partition", "node_type")
USAGE_COLUMNS = tuple(Usage.__dataclass_fields__)
LAST_COLUMNS = ("state", "scale", "repetition", "exit_code", "reason", "started_at", "ended_at", "source", "app", "id")
JOB_COLUMNS = ("job_id",)  # of runs that were a scheduler's jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What came of an import. ``skipped`` says why rows were left out, and which."""

    app: str
    read: int
    added: int
    already_there: int
    parameters: tuple[str, ...]
    skipped: Mapping[str, Sequence[int]] = field(default_factory=dict)
