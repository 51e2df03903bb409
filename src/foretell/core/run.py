"""One configuration on one allocation, and its result."""

import enum
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from foretell.core.app import Scale, Value
from foretell.core.warning import PredictionWarning


class State(enum.StrEnum):
    """The state of a run.

    Models are fitted to COMPLETED runs, and to those stopped by a limit as censored ones: "longer than", "more than".
    INTERRUPTED runs (a node failed, a job was preempted) are not used, and are made again automatically.
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


FITTED_STATES = (State.COMPLETED, State.TIMED_OUT, State.OUT_OF_MEMORY)
_LONGEST_LINE = 120  # characters
_LOG_HEAD = re.compile(r"^--- ", re.MULTILINE)  # before each log in the tail of several
_LOGS_WITH_REASON = ("stderr.log", "setup.log", "stdout.log")
ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")  # colours, cursor

RETRIABLE = frozenset({State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.CANCELLED, State.INTERRUPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Requested resources. ``memory_bytes`` is per node; ``None`` is the default of the site.

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
        version = [self.version] if self.version else []  # so that ids of the first version do not change
        key = [self.app, sorted(self.parameters.items()), resources, *version]
        text = json.dumps(key, ensure_ascii=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def id(self) -> str:
        """A key for this run, the same on every machine: a run with a stored result is not made again."""
        return f"{self.configuration}-{self.repetition}"


def find_repetition(spec: RunSpec, is_taken: Callable[[str], bool]) -> RunSpec:
    """The first repetition from this one on whose id is not taken."""
    while is_taken(spec.id):
        spec = replace(spec, repetition=spec.repetition + 1)
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources used by the whole process tree of a run. ``None`` if not measured."""

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
    """Facts of the machine of a run; ``load`` is that of other processes during the run, in cores."""

    hostname: str = ""
    cpu_model: str = ""
    cores: int | None = None
    cpu_mhz: float | None = None
    memory_bytes: int | None = None
    gpu_model: str | None = None
    gpus: int = 0
    load: float | None = None
    extra: Mapping[str, Value] = field(default_factory=dict)


BENCH_VERSION = 1  # of the fixed work; a change of its duration needs a new version
BENCH_FIGURES = ("bench_s", "bench_core_s", "bench_cores_s", "bench_memory_s", "bench_disk_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """How long a machine takes for fixed work: medians over ``repeats``, lower is faster.

    ``bench_s`` is the geometric mean of core and memory. ``spread`` is the interquartile range of each figure, as a
    share of the median. ``busy_cores`` is the load of other processes; ``warnings`` say why the
    figures should not be used. Figures of different versions are not compared.
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
        """The figures that runs on this machine store, as facts of their machine."""
        known = {name: getattr(self, name) for name in BENCH_FIGURES if getattr(self, name) is not None}
        return {"bench_version": self.bench_version, **known}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who is making a run, precisely enough to find out whether it is still being made.

    ``token`` is unique to one process; ``started_at`` is that process's start, which detects a reused pid.
    Runs of a scheduler's batch are owned by no process: pid 0.
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
    """The result of a run specification.

    A run that was a scheduler's job has its ``job_id``; ``allocated`` is what it was given and is charged for.
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
        """The last line of its stderr, or of another log: for a failed run, usually the reason."""
        tail = ESCAPE_SEQUENCE.sub("", self.log_tail)
        heads = [part.partition("\n") for part in _LOG_HEAD.split(tail)[1:]]
        parts: dict[str, str] = {name: text for name, _, text in heads} or {"": tail}
        for name in (*_LOGS_WITH_REASON, *parts):
            lines = [line.strip() for line in parts.get(name, "").splitlines() if line.strip()]
            if lines:
                return lines[-1][-_LONGEST_LINE:]
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that somebody is making: its specification, its owner and the last heartbeat."""

    spec: RunSpec
    owner: Owner
    heartbeat_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A run specification ready to start: arguments, environment, folders. Nothing in it needs a shell.

    ``inherited`` are variables that Foretell reads itself and that the run gets as well.
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


# A run as a row of a table: its columns in addition to parameters, ``phase_`` and ``machine_`` ones.
RESOURCE_COLUMNS = ("cores", "memory_bytes", "gpus", "nodes", "partition", "node_type")
USAGE_COLUMNS = tuple(Usage.__dataclass_fields__)
LAST_COLUMNS = ("state", "scale", "repetition", "exit_code", "reason", "started_at", "ended_at", "source", "app", "id")
JOB_COLUMNS = ("job_id",)  # of runs that were a scheduler's jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """The result of an import. ``skipped`` lists the rows that were not imported, by reason."""

    app: str
    read: int
    added: int
    already_there: int
    parameters: tuple[str, ...]
    skipped: Mapping[str, Sequence[int]] = field(default_factory=dict)


SAMPLE = "sample.json"  # what the sampler of a job writes

RUN_ID = "FORETELL_RUN_ID"
RUN_DIRECTORY = "FORETELL_RUN_DIR"
OWNER = "FORETELL_OWNER"
CACHE = "FORETELL_CACHE"

_PREFIX = "FORETELL_"
# The folder of a run, and marks by which its processes are found.
OF_A_RUN = (RUN_DIRECTORY, RUN_ID, OWNER, "FORETELL_BATCH")
_NEEDED = {CACHE}  # where a sampler inside a job finds the benchmark of its node
# By which libpq, and so a store on PostgreSQL, finds its password.
_OF_THE_STORE = {"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLKEY"}


def build_environment(*, inherited: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a run; ``inherited`` are names that it gets although they are Foretell's own."""
    asked = set(inherited)
    return {name: value for name, value in os.environ.items() if name in asked or not _is_own(name)}


def _is_own(name: str) -> bool:
    return name in _OF_THE_STORE or (name.startswith(_PREFIX) and name not in _NEEDED)
