"""The next request after one that was too small: more of what ran out, and of nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from foretell.core.prediction import Request
from foretell.core.run import Allocation, State
from foretell.core.units import render_bytes, render_duration

_MINUTE_S, _MEBIBYTE = 60.0, 2**20


class RaisePolicy(Protocol):
    """How much more to request."""

    def walltime_s(self, asked_s: float) -> float: ...

    def memory_bytes(self, asked: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Doubling:
    """Twice as much each time, as HARP does."""

    def walltime_s(self, asked_s: float) -> float:
        return 2 * asked_s

    def memory_bytes(self, asked: int) -> int:
        return 2 * asked


@dataclass(frozen=True, slots=True)
class LeastCost:
    """The next request of the sequence that costs least on average; twice as much after its last one."""

    request: Request

    def walltime_s(self, asked_s: float) -> float:
        return _next(self.request.retries_walltime_s, asked_s) or 2 * asked_s

    def memory_bytes(self, asked: int) -> int:
        return int(_next(self.request.retries_memory, asked) or 2 * asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The largest request that the site and the user allow; ``None`` where there is no limit."""

    walltime_s: float | None = None
    memory_bytes: int | None = None


def raise_request(asked: Allocation, state: State, *, by: RaisePolicy, ceiling: Ceiling) -> Allocation | str:
    """The next request after a run that ended in this state; or, as a sentence, why there is none."""
    if state is State.TIMED_OUT and asked.walltime_s is not None:
        more_s = _cap(_round_up(by.walltime_s(asked.walltime_s), _MINUTE_S), ceiling.walltime_s)
        if more_s > asked.walltime_s:
            return replace(asked, walltime_s=more_s)
        return f"it ran out of time, and {render_duration(asked.walltime_s)} is the most that may be requested"
    if state is State.OUT_OF_MEMORY and asked.memory_bytes is not None:
        more = int(_cap(_round_up(by.memory_bytes(asked.memory_bytes), _MEBIBYTE), ceiling.memory_bytes))
        if more > asked.memory_bytes:
            return replace(asked, memory_bytes=more)
        return f"it ran out of memory, and {render_bytes(asked.memory_bytes)} is the most that may be requested"
    return ""


def _next(planned: Sequence[float], asked: float) -> float | None:
    return next((more for more in planned if more > asked), None)


def _round_up(value: float, step: float) -> float:
    return -(-value // step) * step


def _cap(value: float, most: float | None) -> float:
    return value if most is None else min(value, most)
