"""What the fake cluster knows: batches as they were submitted, and their tasks as they fare.

All of it is one JSON file in ``$FAKE_SLURM``, replaced as a whole, so that readers need no lock; writers hold one. Only
modules that are imported quickly are used by the programs: no dataclasses, no pathlib, no subprocesses.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator

ROOT = os.environ.get("FAKE_SLURM", "")
USER = "root"
ACTIVE = ("PENDING", "RUNNING", "COMPLETING")


class RefusalError(Exception):
    """A program says no, on stderr, and ends with a code."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Batch:
    """What one ``sbatch`` asked for."""

    def __init__(self, **values: object) -> None:
        self.id: int
        self.name: str
        self.account: str
        self.partition: str
        self.nodes: int
        self.cpus: int
        self.ntasks: int
        self.memory_mb: int
        self.enforces_memory: bool
        self.limit_min: int
        self.requeue: bool
        self.comment: str
        self.gpus: str
        self.output: str
        self.error: str
        self.folder: str
        self.line: str
        self.indexes: list[int]
        self.__dict__.update(values)


class Task:
    """One job, or one element of an array."""

    def __init__(self, **values: object) -> None:
        self.batch: int
        self.index: int | None = None
        self.raw_id: int | None = None
        self.state: str = "PENDING"
        self.reason: str = "None"
        self.code: int = 0
        self.signal: int = 0
        self.submit_at: float
        self.start_at: float | None = None
        self.end_at: float | None = None
        self.node: str = ""
        self.restarts: int = 0
        self.peak_kb: int = 0
        self.cpu_s: float = 0.0
        self.__dict__.update(values)

    @property
    def id(self) -> str:
        return str(self.batch) if self.index is None else f"{self.batch}_{self.index}"

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def stop_file(self) -> str:
        """Where a running task finds the word that ends it."""
        return f"{ROOT}/stop-{self.id}"


class State:
    """All the cluster knows."""

    def __init__(self) -> None:
        try:
            with open(f"{ROOT}/state.json") as file:
                kept = json.load(file)
        except FileNotFoundError:
            if not ROOT:
                raise RefusalError("FAKE_SLURM names no folder; the fixture fake_slurm sets it") from None
            kept = {"next_id": 1, "batches": [], "tasks": [], "past": [], "workers": [], "down": []}
        self.next_id: int = kept["next_id"]
        self.batches = {values["id"]: Batch(**values) for values in kept["batches"]}
        self.tasks = [Task(**values) for values in kept["tasks"]]
        self.past = [Task(**values) for values in kept["past"]]
        self.workers: list[int] = kept["workers"]
        self.down: list[str] = kept["down"]

    def save(self) -> None:
        kept = {
            "next_id": self.next_id,
            "batches": [vars(batch) for batch in self.batches.values()],
            "tasks": [vars(task) for task in self.tasks],
            "past": [vars(task) for task in self.past],
            "workers": self.workers,
            "down": self.down,
        }
        new = f"{ROOT}/state.{os.getpid()}"
        with open(new, "w") as file:
            json.dump(kept, file)
        os.rename(new, f"{ROOT}/state.json")

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def get_pending(self, batch: int) -> list[Task]:
        return [task for task in self.tasks if task.batch == batch and task.state == "PENDING"]

    def find(self, word: str) -> list[Task]:
        """Tasks meant by ``12``, ``12_3``, ``12_[1-3]`` or a raw id."""
        number, _, element = word.partition("_")
        if not number.isdecimal():
            raise RefusalError(f"Invalid job id specified: {word}")
        if not element:
            return [task for task in self.tasks if int(number) in (task.batch, task.raw_id)]
        indexes = set(parse_indexes(element.strip("[]")))
        return [task for task in self.tasks if task.batch == int(number) and task.index in indexes]


class Change:
    """The state, for one who changes it: ``with Change() as state``."""

    def __enter__(self) -> State:
        self._lock = open(f"{ROOT}/lock", "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._state = State()
        return self._state

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._state.save()
        self._lock.close()


def find_fault(name: str) -> str | None:
    """What a test wrote into a fault's file, if it did."""
    try:
        with open(f"{ROOT}/{name}") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def parse_indexes(text: str) -> Iterator[int]:
    """Numbers in ``1,5-7,10-20:5``; what follows a percent sign is how many may run at once, which is not kept."""
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def render_indexes(numbers: Iterable[int]) -> str:
    """``1,5-7`` for numbers in order."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def render_moment(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def render_clock(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def get_minute_s() -> float:
    """How long a minute of a time limit lasts."""
    return float(os.environ.get("FAKE_SLURM_MINUTE", "60"))
