"""What a recorded script says about its training: the step's settings, its data, how long it trains."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foretell.core.memory import MemoryTrace
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Workload

_SHOWN = 5  # files that a warning names
COUNTS = ("batches", "samples", "epochs", "steps", "processes")
_LATER_COUNTS = ("batch_size", "accumulation")
_NUMBERS = ("load_s", "evaluation_batches", "saves_per_epoch")
_HOST_COUNTS = ("workers", "prefetch", "batch_bytes", "process_bytes", "worker_bytes", "moved_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """What the script does beyond one step, as far as it shows it; None for what it does not show."""

    optimizer: str = ""  # the class, such as AdamW
    learning_rate: float | None = None
    samples: int | None = None  # in the data set of the training
    batches: int | None = None  # of an epoch
    epochs: int | None = None
    steps: int | None = None  # updates of the whole training, if it counts them
    batch_size: int | None = None  # examples of a batch
    accumulation: int | None = None  # batches of a step
    load_s: float | None = None  # in which one worker makes a batch on this machine
    evaluation_batches: float | None = None  # of evaluations, an epoch
    saves_per_epoch: float | None = None  # checkpoints that are written
    processes: int = 1
    gpu: bool = False  # whether it asks for a GPU
    wrappers: tuple[str, ...] = ()  # around the model, such as DistributedDataParallel
    workers: int | None = None  # processes that load the data of the training
    prefetch: int | None = None  # batches that each of them loads ahead
    pin_memory: bool | None = None
    batch_bytes: int | None = None  # of the tensors of a batch, on the host
    process_bytes: int | None = None  # that the process occupies before the step, without moved_bytes
    worker_bytes: int | None = None  # that one worker occupies for itself after the step
    moved_bytes: int | None = None  # of parameters that were on the host before they came to the GPU

    @property
    def examples_per_step(self) -> int | None:
        """Examples of a step of one process."""
        return None if self.batch_size is None else self.batch_size * (self.accumulation or 1)

    @property
    def steps_per_epoch(self) -> int | None:
        """Updates of an epoch; a last one may have fewer batches."""
        return None if not self.batches else math.ceil(self.batches / (self.accumulation or 1))

    @property
    def total_steps(self) -> int | None:
        """Updates of the whole training."""
        if self.steps is not None or self.epochs is None or self.steps_per_epoch is None:
            return self.steps
        return self.epochs * self.steps_per_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScript:
    """The first training step of a script."""

    workload: Workload
    facts: ScriptFacts
    command: tuple[str, ...] = ()
    created: tuple[str, ...] = ()  # files and folders that the script made before the step ended
    changed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()  # optimizers that did not update their parameters in this step
    memory: MemoryTrace | None = None  # from the start of the process on; None where it was not asked for

    @property
    def warnings(self) -> tuple[PredictionWarning, ...]:
        """What a user must know about this recording."""
        found = []
        if self.waiting:
            names = ", ".join(self.waiting)
            text = (
                f"The step ends with the update by {self.facts.optimizer}; {names} did not update its parameters "
                "before that. If both belong to a step, what the other one does is missing."
            )
            found.append(build_warning("script-incomplete-step", text, optimizers=list(self.waiting)))
        if self.created or self.changed:
            text = f"Before the step ended, the script {_list_files(self.created, self.changed)}."
            found.append(
                build_warning("script-wrote-files", text, created=list(self.created), changed=list(self.changed))
            )
        return tuple(found)


def _list_files(created: Sequence[str], changed: Sequence[str]) -> str:
    parts = [
        f"{verb} {', '.join(paths[:_SHOWN])}{f' and {len(paths) - _SHOWN} more' if len(paths) > _SHOWN else ''}"
        for verb, paths in (("created", created), ("changed", changed))
        if paths
    ]
    return " and ".join(parts)


def facts_to_record(facts: ScriptFacts) -> dict[str, Any]:
    """Facts as plain values."""
    return asdict(facts)


def facts_from_record(record: Mapping[str, Any]) -> ScriptFacts:
    """The facts of a record of :func:`facts_to_record`.

    Raises:
        KeyError, TypeError, ValueError: The values are not facts.
    """
    rate = record["learning_rate"]
    return ScriptFacts(
        optimizer=str(record["optimizer"]),
        learning_rate=None if rate is None else float(rate),
        processes=max(1, int(record["processes"])),
        gpu=record["gpu"] is True,
        wrappers=tuple(map(str, record["wrappers"])),
        pin_memory=None if record.get("pin_memory") is None else record["pin_memory"] is True,
        **_read_optional(record),
    )


def _read_optional(record: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {name: _read_count(record[name]) for name in COUNTS[:-1]}
    counts |= {name: _read_count(record.get(name)) for name in (*_HOST_COUNTS, *_LATER_COUNTS)}
    return counts | {name: _read_number(record.get(name)) for name in _NUMBERS}


def _read_count(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _read_number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a number from 0 on")
    return float(value)


def estimate_host_bytes(facts: ScriptFacts) -> int | None:
    """The most memory of the host that a job with this script needs; None if it is not known.

    The process, and the larger of two: the weights until they have come to the GPU, or, later, the data. Each worker
    has memory of its own, which it has written since it was forked, and loads batches ahead; one more is being made by
    each worker, and one is in use. Without workers, the next batch is made while one is in use.

    Not in it: the host memory of CUDA and its libraries, which only a machine with a GPU shows; what the files of the
    data occupy in the page cache, which Linux gives up when it is asked for; and what workers write later than in the
    recorded steps. Those that read a long list of Python objects copy it bit by bit, up to the size of the list.
    """
    if facts.process_bytes is None:
        return None
    batch, workers = facts.batch_bytes or 0, facts.workers or 0
    loading = workers * ((facts.worker_bytes or 0) + ((facts.prefetch or 0) + 1) * batch)
    return facts.process_bytes + max(facts.moved_bytes or 0, loading + (1 if workers else 2) * batch)
