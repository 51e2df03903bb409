"""When to ask Slurm again."""

import time

_LONGEST_S = 30.0
_SLOWER = 1.5


class Pace:
    """Soon after something ended, less and less often while nothing does; never twice within ``shortest_s``."""

    def __init__(self, shortest_s: float) -> None:
        self._shortest_s = self._interval_s = shortest_s
        self._asked_at = float("-inf")
        self._ended = self._ended_then = 0

    def is_due(self, *, ended: int) -> bool:
        """Whether to ask now; ``ended`` runs have said so themselves, and are still to be asked about."""
        self._ended = ended
        passed_s = time.monotonic() - self._asked_at
        return passed_s >= (self._shortest_s if ended != self._ended_then else self._interval_s)

    def note(self, *, changed: bool) -> None:
        """It was asked just now; ``changed``: something had happened."""
        self._asked_at = time.monotonic()
        self._ended_then = self._ended
        self._interval_s = self._shortest_s if changed else min(self._interval_s * _SLOWER, _LONGEST_S)
