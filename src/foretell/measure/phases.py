"""Reads numbers that a run reports about its phases, from the lines it prints or from a JSON file."""

import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.core.app import Combine, Phase

_LONGEST_LINE = 1 << 16  # text without line breaks is read in pieces, because logs can have gigabytes


def read_phases(
    phases: Sequence[Phase], *, run_directory: Path, output: Path
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the number of each phase that could be read, and a message for each that could not."""
    tallies = [_Tally(phase) for phase in phases]
    _read_lines([tally for tally in tallies if tally.phase.pattern is not None], output=output)
    for tally in tallies:
        if tally.phase.file is not None:
            _read_json(tally, path=run_directory / tally.phase.file)
    values = {tally.phase.name: tally.value for tally in tallies if tally.complaint is None}
    complaints = (f"phase {tally.phase.name!r}: {tally.complaint}" for tally in tallies if tally.complaint)
    return values, tuple(complaints)


@dataclass(slots=True)
class _Tally:
    """The matches of one phase so far, combined as they are read."""

    phase: Phase
    count: int = 0
    total: float = 0.0
    first: float = math.nan
    last: float = math.nan
    largest: float = -math.inf
    complaint: str | None = None

    @property
    def value(self) -> float:
        return _COMBINED[self.phase.combine](self)

    def add(self, found: object, *, place: str) -> None:
        self.count += 1
        if self.phase.combine is Combine.COUNT or self.complaint:
            return
        number = _to_number(found)
        if number is None:
            self.complaint = f"{reprlib.repr(found)} in {place} is not a finite number"
            return
        self.first = number if self.count == 1 else self.first
        self.last = number
        self.total += number
        self.largest = max(self.largest, number)


_COMBINED: dict[Combine, Callable[[_Tally], float]] = {
    Combine.MEAN: lambda tally: tally.total / tally.count,
    Combine.SUM: lambda tally: tally.total,
    Combine.FIRST: lambda tally: tally.first,
    Combine.LAST: lambda tally: tally.last,
    Combine.MAX: lambda tally: tally.largest,
    Combine.COUNT: lambda tally: float(tally.count),
}


def _to_number(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        number = float(found)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _read_lines(tallies: Sequence[_Tally], *, output: Path) -> None:
    patterns = [(tally, pattern) for tally in tallies if (pattern := _compile(tally))]
    if not patterns:
        return
    try:
        for line in _lines(output):
            for tally, pattern in patterns:
                for match in pattern.finditer(line):
                    tally.add(match.group(1 if pattern.groups else 0), place=output.name)
    except OSError as exc:
        for tally, _ in patterns:
            tally.complaint = f"{output} cannot be read: {exc.strerror}"
    for tally, pattern in patterns:
        if not tally.count and tally.complaint is None and tally.phase.combine is not Combine.COUNT:
            tally.complaint = f"no line of {output.name} matches {pattern.pattern!r}"


def _compile(tally: _Tally) -> re.Pattern[str] | None:
    assert tally.phase.pattern is not None
    try:
        return re.compile(tally.phase.pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        tally.complaint = f"{tally.phase.pattern!r} is not a regular expression: {exc}"
        return None


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        while line := file.readline(_LONGEST_LINE):
            yield line.rstrip("\n")


def _read_json(tally: _Tally, *, path: Path) -> None:
    try:
        found = _get_key(json.loads(path.read_text(encoding="utf-8")), tally.phase.key)
    except OSError as exc:
        tally.complaint = f"{tally.phase.file} cannot be read: {exc.strerror}"
    except (ValueError, RecursionError):
        tally.complaint = f"{tally.phase.file} is not JSON"
    except LookupError as exc:
        tally.complaint = f"{tally.phase.file} has {exc.args[0]}"
    else:
        _add_all(tally, found)


def _get_key(document: Any, key: str | None) -> Any:
    for part in key.split(".") if key else ():
        if not isinstance(document, dict) or part not in document:
            keys = ", ".join(map(repr, document)) if isinstance(document, dict) else "none"
            raise LookupError(f"no key {part!r} (of {key!r}); keys there: {keys}")
        document = document[part]
    return document


def _add_all(tally: _Tally, found: Any) -> None:
    numbers: Iterable[Any] = found if isinstance(found, list) else [found]
    place = f"{tally.phase.file}, {tally.phase.key}" if tally.phase.key else str(tally.phase.file)
    for number in numbers:
        tally.add(number, place=place)
    if not tally.count and tally.phase.combine is not Combine.COUNT:
        tally.complaint = f"the list in {place} is empty"
