"""What a recorded script says about its training: the step's settings, its data, how long it trains."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foretell.core.memory import MemoryTrace
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Workload

_SHOWN = 5  # files that a warning names
COUNTS = ("batches", "samples", "epochs", "steps", "processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """What the script does beyond one step, as far as it shows it; None for what it does not show."""

    optimizer: str = ""  # the class, such as AdamW
    learning_rate: float | None = None
    samples: int | None = None  # in the data set of the training
    batches: int | None = None  # of an epoch
    epochs: int | None = None
    steps: int | None = None  # of the whole training, if it counts steps
    processes: int = 1
    gpu: bool = False  # whether it asks for a GPU
    wrappers: tuple[str, ...] = ()  # around the model, such as DistributedDataParallel


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
        **{name: _read_count(record[name]) for name in COUNTS[:-1]},
    )


def _read_count(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value
