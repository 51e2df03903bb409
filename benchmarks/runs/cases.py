"""What a set of measurements is cut into, and what comes back."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from foretell import Columns

TIME, MEMORY = "time", "memory"
VARIABLE, DEFAULT_FOLDER = "FORETELL_DATA", Path("../shared/data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of a protocol is run. ``full`` is as often as it was published."""

    repeats: int = 20
    seeds: int = 10
    full: bool = False

    def draws(self, published: int) -> range:
        """The seeds of random splits that were published with so many."""
        return range(published if self.full else min(self.repeats, published))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Runs to learn from and runs to predict.

    The index names rows: no name may be in both tables. ``labels`` are columns that no model sees; they come back with
    the predictions, so that figures can be computed for each of their values.
    """

    part: str
    seed: int = 0
    train: pd.DataFrame
    test: pd.DataFrame
    columns: Columns
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a case: a row for each prediction, and the seconds of each build."""

    part: str
    seed: int = 0
    rows: pd.DataFrame
    build_s: tuple[float, ...] = ()
    trained_on: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, smaller is better: ours, the best others are known to reach, and the goal."""

    name: str
    ours: float
    spread: float | None = None
    known: float | None = None
    known_by: str = ""
    goal: float | None = None
    unit: str = "%"

    @property
    def reached(self) -> bool | None:
        return None if self.goal is None else self.ours <= self.goal

    @property
    def ahead(self) -> bool | None:
        return None if self.known is None else self.ours < self.known


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A set of measurements with its protocol: how to split it, how to predict a case, which figures to compute."""

    name: str
    folder: str
    about: str
    cases: Callable[[Path, Plan], Iterable[Case]]
    answer: Callable[[Case], Result]
    figures: Callable[[pd.DataFrame, Path], Sequence[Figure]]
    quantity: str = TIME


def find_folder(name: str) -> Path:
    """Where a set's files are.

    Raises:
        FileNotFoundError: if there are none.
    """
    root = Path(os.environ.get(VARIABLE, DEFAULT_FOLDER))
    if not (root / name).is_dir():
        raise FileNotFoundError(
            f"no measurements in {root / name}: set {VARIABLE} to the folder that holds {name}/ and the other sets"
        )
    return root / name


def each(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The groups of a table in the order they come, each with its name."""
    for key, group in frame.groupby(list(by), sort=False):
        yield "/".join(str(value) for value in key), group
