"""Says on stderr how far a long comparison is."""

import sys
import time
from collections.abc import Collection, Iterator
from typing import TypeVar

from benchmarks.gpus.results import Result

T = TypeVar("T")


def follow(items: Collection[T], what: str) -> Iterator[T]:
    """The items; each is named before it is used, with the seconds since the first."""
    start = time.perf_counter()
    for place, item in enumerate(items, start=1):
        elapsed = time.perf_counter() - start
        print(f"{what}: {item} ({place} of {len(items)}), {elapsed:.0f} s", file=sys.stderr, flush=True)
        yield item


def show(result: Result) -> Result:
    """The result, once its errors are on stderr."""
    print(
        f"  {result.what}, {result.group}: mean {result.mean:.1f} %, {result.cases} cases, {result.note}",
        file=sys.stderr,
    )
    return result
