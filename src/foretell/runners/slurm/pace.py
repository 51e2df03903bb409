"""When to ask Slurm again."""

import time

_LONGEST_S = 30.0
_SLOWER = 1.5
# In times the shortest interval: ends come in bursts, so they are gathered until a burst is over.
_GATHER, _LONGEST_GATHER = 2, 6
_QUIET = 0.4
_SETTLE = 0.2  # accounting hears of an end a moment later than we do


class Pace:
    """Right after the last run ended, soon after some did, less and less often while none does.

    Never twice within ``shortest_s``.
    """

    def __init__(self, shortest_s: float) -> None:
        self._shortest_s = self._interval_s = shortest_s
        self._asked_at = self._ended_at = float("-inf")
        self._ended = self._ended_then = 0

    def is_due(self, *, ended: int, left: int) -> bool:
        """Whether to ask now: of the ``left`` ones still to be asked about, ``ended`` ones have said that they have."""
        now = time.monotonic()
        if ended != self._ended:
            self._ended, self._ended_at = ended, now
        return now - self._asked_at >= self._shortest_s and self._is_worth_it(now, left)

    def _is_worth_it(self, now: float, left: int) -> bool:
        passed_s, quiet_s = now - self._asked_at, now - self._ended_at
        if self._ended == self._ended_then:
            return passed_s >= self._interval_s
        if self._ended >= left:
            return quiet_s >= _SETTLE * self._shortest_s
        over = passed_s >= _GATHER * self._shortest_s and quiet_s >= _QUIET * self._shortest_s
        return over or passed_s >= _LONGEST_GATHER * self._shortest_s

    def note(self, *, changed: bool) -> None:
        """It was asked just now; ``changed``: something had happened."""
        self._asked_at = time.monotonic()
        self._ended_then = self._ended
        self._interval_s = self._shortest_s if changed else min(self._interval_s * _SLOWER, _LONGEST_S)
