"""An application: a command with parameters, how to scale it down, and where its phases are read from."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Value = bool | int | float | str

LOG_LIMIT_BYTES = 64 << 20

RESOURCES = ("cores", "memory_bytes", "gpus", "nodes")


class Scale(enum.StrEnum):
    """Which sweep a run belongs to."""

    SCALED_DOWN = "SD"
    FULL_SCALE = "FS"


class ParameterType(enum.StrEnum):
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The values a parameter takes in one use: listed, or (for the target) any number between two bounds."""

    values: tuple[Value, ...] = ()
    low: float | None = None
    high: float | None = None

    def allows(self, value: Value) -> bool:
        if self.low is not None and self.high is not None:
            return isinstance(value, int | float) and self.low <= value <= self.high
        return value in self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A named, typed placeholder in the command."""

    name: str
    type: ParameterType
    scaled_down: Domain = field(default_factory=Domain)
    full_scale: Domain = field(default_factory=Domain)
    target: Domain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSweep:
    """The allocations a sweep tries: every combination of these."""

    cores: tuple[int, ...] = (1,)
    memory_bytes: tuple[int | None, ...] = (None,)
    gpus: tuple[int, ...] = (0,)
    nodes: tuple[int, ...] = (1,)


class Combine(enum.StrEnum):
    """How several matches of one phase become one number."""

    MEAN = "mean"
    SUM = "sum"
    FIRST = "first"
    LAST = "last"
    MAX = "max"
    COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Part of a run, in seconds (or any number): read from its output by a pattern, or from a JSON file it writes."""

    name: str
    pattern: str | None = None
    file: str | None = None
    key: str | None = None
    combine: Combine = Combine.MEAN


RUNNERS = ("local", "slurm")

# Options of sbatch that Foretell sets itself, and what to use instead.
OWN_OPTIONS = {
    "account": "the account: --account, or slurm.account in the app file",
    "array": "nothing: runs are grouped into arrays automatically",
    "chdir": "working_directory in the app file",
    "cpus-per-task": "resources.cores in the app file",
    "error": "nothing: the output of a run is in its own directory",
    "gpus-per-node": "resources.gpus in the app file",
    "help": "nothing: it submits no job; see 'sbatch --help'",
    "job-name": "nothing: Foretell finds its batches by their names",
    "mem": "resources.memory in the app file, or --memory of foretell run",
    "nodes": "resources.nodes in the app file",
    "output": "nothing: the output of a run is in its own directory",
    "parsable": "nothing: the output of sbatch is read by Foretell",
    "partition": "the partition: slurm.partition in the app file (or --partition of generate)",
    "test-only": "--dry-run: sbatch submits no job with it",
    "time": "time_limit in the app file, or --time of foretell run",
    "usage": "nothing: it submits no job; see 'sbatch --usage'",
    "version": "nothing: it submits no job; see 'sbatch --version'",
    "wait": "--wait of foretell generate; foretell run always waits",
    "wrap": "command or shell in the app file",
}
_WHOLE_NAMES = {"gpus"}  # options that are also a prefix of one above


def find_meant_option(name: str, options: Iterable[str] = OWN_OPTIONS) -> str | None:
    """Which of these options the name is, or may abbreviate: sbatch accepts abbreviations."""
    if name in _WHOLE_NAMES:
        return None
    return min((option for option in options if option.startswith(name)), default=None)


def describe_option(name: str, meant: str) -> str:
    """The name of an option, and which one it abbreviates."""
    return repr(name) if name == meant else f"{name!r}, which sbatch may read as {meant!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """How runs are submitted to Slurm.

    ``options`` are further ``sbatch`` options by their long names; an empty value is a flag. ``clusters`` among them
    becomes ``cluster``, which is also the one that is queried. ``sample``: a sampler runs next to each command, for
    what accounting does not record (memory over time, GPUs). ``without`` are options that the site does not accept.
    """

    partition: str | None = None
    account: str | None = None
    cluster: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    sample: bool = False
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        options = dict(self.options)
        cluster = options.pop("clusters", None)  # one place for it: else it would be undefined which one is used
        object.__setattr__(self, "cluster", self.cluster or cluster)
        object.__setattr__(self, "options", options)

    def over(self, base: "Submission") -> "Submission":
        """These settings, with those of ``base`` where there is none."""
        return Submission(
            partition=self.partition or base.partition,
            account=self.account or base.account,
            cluster=self.cluster or base.cluster,
            options={**base.options, **self.options},
            sample=self.sample or base.sample,
            without=(*base.without, *self.without),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A command with named parameters.

    ``command`` is a list of words with ``{parameter}`` placeholders. ``shell`` is the explicit opt-in for a shell
    string: it has no placeholders; parameters reach it as environment variables ``PARAM_name``, so that no value is
    inserted into a shell. An app of imported runs has neither. ``inherited`` are variables that Foretell reads itself,
    such as the store's password, and that runs get as well. ``per`` is a formula that the time is proportional to.
    ``where`` are conditions that every configuration must meet. ``runner`` says where runs are made, one of
    :data:`RUNNERS`. ``log_limit_bytes`` is how much of each log of a run is kept.

    ``version`` counts how often the user started over because the program had changed: runs of earlier versions stay
    stored, and are not used. The store keeps it, not the app file.
    """

    name: str
    command: tuple[str, ...] = ()
    shell: str | None = None
    directory: str = "."
    working_directory: str = "{run_dir}"
    parameters: tuple[Parameter, ...] = ()
    scaled_down_resources: ResourceSweep = field(default_factory=ResourceSweep)
    full_scale_resources: ResourceSweep = field(default_factory=ResourceSweep)
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    setup: tuple[tuple[str, ...], ...] = ()
    cleanup: tuple[tuple[str, ...], ...] = ()
    repetitions: int = 1
    time_limit_s: float | None = None
    log_limit_bytes: int = LOG_LIMIT_BYTES
    phases: tuple[Phase, ...] = ()
    estimate: str | None = None
    per: str | None = None
    where: tuple[str, ...] = ()
    runner: str = "local"
    submission: Submission = field(default_factory=Submission)
    version: int = 0

    def parameter_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    def find_parameter(self, name: str) -> Parameter | None:
        return next((parameter for parameter in self.parameters if parameter.name == name), None)
