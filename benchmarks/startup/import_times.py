"""What the imports of a command cost, as ``python -X importtime`` prints it."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"import time:\s+(?P<own>\d+) \|\s+(?P<all>\d+) \|\s+(?P<name>\S+)")
_MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTime:
    """How long a module took to import: by itself, and with all that it imported first."""

    name: str
    own_s: float
    total_s: float


def parse_import_times(text: str) -> list[ImportTime]:
    """Every module in the text, the most own time first."""
    times = [
        ImportTime(name=found["name"], own_s=int(found["own"]) * _MICROSECOND, total_s=int(found["all"]) * _MICROSECOND)
        for found in map(_LINE.match, text.splitlines())
        if found
    ]
    return sorted(times, key=lambda time: -time.own_s)


def sum_by_package(times: Iterable[ImportTime]) -> dict[str, float]:
    """Own seconds of all modules of each top-level package, the most first."""
    sums: defaultdict[str, float] = defaultdict(float)
    for time in times:
        sums[time.name.partition(".")[0]] += time.own_s
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
