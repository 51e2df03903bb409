"""What drives a prediction, what sets it apart from the usual run, and where its uncertainty comes from."""

from collections.abc import Mapping
from dataclasses import dataclass

from foretell.core.app import Value
from foretell.core.prediction import Estimate
from foretell.core.run import Allocation

INSIDE = "noise and model error"  # what runs leave open even where they were made
MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is predicted with one value of a driver, all else as asked."""

    value: Value
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of the measured range, over which the prediction grows with this power of the driver."""

    low: float
    high: float
    exponent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A parameter or resource that matters.

    ``effect`` is the largest prediction over the smallest as it takes every value measured, reached at ``most`` and
    ``least``. Positive numbers have an ``exponent`` (at the question) and ``pieces``; texts have neither.
    ``low`` and ``high`` are the range of the runs, ``None`` for texts.
    """

    name: str
    value: Value
    effect: float
    least: Value
    most: Value
    low: float | None
    high: float | None
    exponent: float | None
    pieces: tuple[Piece, ...]
    curve: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """How much one value sets the question apart from the usual run.

    The factors of all contributions multiply to the whole difference; ``share`` is of the sum of their logarithms,
    each taken as positive.
    """

    name: str
    value: Value
    usual: Value
    factor: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A part of the interval's width: a value outside the runs (``measured`` says what they had), or what remains."""

    name: str
    value: Value | None
    measured: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantityExplanation:
    """The explanation of one quantity; drivers, contributions and sources have the largest first."""

    quantity: str
    estimate: Estimate
    usual: Estimate
    drivers: tuple[Driver, ...]
    contributions: tuple[Contribution, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What drives the prediction for one configuration; ``usual`` is the run it is held against."""

    app: str
    parameters: Mapping[str, Value]
    allocation: Allocation
    usual: Mapping[str, Value]
    elapsed_s: QuantityExplanation
    peak_memory_bytes: QuantityExplanation | None
