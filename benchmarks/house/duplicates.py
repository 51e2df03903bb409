"""Runs of equal lines that stand in two places."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.house.sources import Source

SHORTEST = 6

_Spot = tuple[int, int]  # a file, and a place among its compared lines


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateRun:
    """Two places with the same consecutive lines of code."""

    first: str
    second: str
    lines: int


def find_duplicate_runs(sources: Sequence[Source], *, shortest: int = SHORTEST) -> list[DuplicateRun]:
    """Pairs of places with at least so many equal lines of code in a row, the longest first.

    Blank lines, comments, docstrings and imports are left out before lines are compared; indentation does not count.
    """
    files = [_compared_lines(source) for source in sources]
    spots: defaultdict[tuple[str, ...], list[_Spot]] = defaultdict(list)
    for number, lines in enumerate(files):
        for start in range(len(lines) - shortest + 1):
            window = tuple(text for _, text in lines[start : start + shortest])
            spots[window].append((number, start))
    pairs = {pair for same in spots.values() for pair in itertools.combinations(same, 2) if _apart(pair, shortest)}
    runs = [
        DuplicateRun(
            first=f"{sources[first[0]].path}:{files[first[0]][first[1]][0]}",
            second=f"{sources[second[0]].path}:{files[second[0]][second[1]][0]}",
            lines=_length((first, second), pairs) + shortest - 1,
        )
        for first, second in pairs
        if (_shift(first, -1), _shift(second, -1)) not in pairs
    ]
    return sorted(runs, key=lambda run: (-run.lines, run.first, run.second))


def _compared_lines(source: Source) -> list[tuple[int, str]]:
    texts = source.text.splitlines()
    return [(number, texts[number - 1].strip()) for number in sorted(source.code_lines - source.import_lines)]


def _apart(pair: tuple[_Spot, _Spot], shortest: int) -> bool:
    (first_file, first), (second_file, second) = pair
    return first_file != second_file or second - first >= shortest


def _length(start: tuple[_Spot, _Spot], pairs: Iterable[tuple[_Spot, _Spot]]) -> int:
    first, second = start
    return next(n for n in itertools.count() if (_shift(first, n), _shift(second, n)) not in pairs)


def _shift(spot: _Spot, by: int) -> _Spot:
    return spot[0], spot[1] + by
