"""A distributed training that is run to be measured, and what its first worker tells of it."""

from dataclasses import dataclass

from foretell.distributed.consumption import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNetwork:
    """Which network is trained: one of the endless row of random ones, or a model's code."""

    number: int = 0
    seed: int = 0
    source: str = ""  # FILE.py:FACTORY, as everywhere
    inputs: tuple[str, ...] = ()  # of a model's code, as in --input
    arguments: tuple[tuple[str, object], ...] = ()  # of its factory; what JSON can hold
    optimizer: str = "sgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A network, a batch for each worker, a setting, and for how long it is looked at."""

    network: TrainedNetwork
    batch: int
    setting: Setting
    seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What the first worker tells; moments are of the machine's monotonic clock."""

    alone_s: float  # an iteration without any communication
    began_s: tuple[float, ...]  # each iteration, and the end of the last
    phases_s: tuple[float, float, float]  # medians: forward, backward, the rest
    others: float = 0.0  # cores that were busy with something else
    stolen: float = 0.0  # cores that other virtual machines had


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """A job that has just been measured, or why it could not be."""

    number: int
    done: int
    asked: int
    family: str = ""
    iteration_s: float | None = None
    disturbed: bool = False
    failed: str = ""
