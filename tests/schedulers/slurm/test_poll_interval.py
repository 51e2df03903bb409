"""When Slurm is polled: never twice within the shortest interval, promptly at the end, rarely in between."""

from itertools import pairwise

import pytest

from foretell.schedulers.slurm import tracking
from foretell.schedulers.slurm.tracking import PollInterval

SHORTEST_S = 3.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tracking, "time", clock)
    return clock


def simulate(clock: Clock, ends: list[float], *, until: float) -> list[float]:
    """Return when Slurm is polled if runs end at these times."""
    interval, polls, known = PollInterval(SHORTEST_S), [], 0
    start = clock.now
    while clock.now - start <= until:
        ended = sum(end <= clock.now - start for end in ends)
        if known < len(ends) and interval.is_due(ended=ended - known, left=len(ends) - known):
            polls.append(clock.now - start)
            interval.record(changed=ended > known)
            known = ended
        clock.now += 0.2
    assert known == len(ends)
    return polls


def test_polls_at_once_and_then_less_and_less_often_while_nothing_ends(clock: Clock) -> None:
    polls = simulate(clock, [600.0], until=640)
    gaps = [round(later - earlier) for earlier, later in pairwise(polls)][:-1]
    assert polls[0] == 0
    assert gaps == sorted(gaps)
    assert gaps[-1] == 30


@pytest.mark.parametrize("ends", [[5.0], [5.0 + n / 100 for n in range(200)], [n / 2 for n in range(1, 400)]])
def test_never_polls_twice_within_the_shortest_interval(clock: Clock, ends: list[float]) -> None:
    polls = simulate(clock, ends, until=300)
    assert min(later - earlier for earlier, later in pairwise(polls)) >= SHORTEST_S - 1e-6


@pytest.mark.parametrize("last", [20.0, 21.3, 22.9, 24.0])
def test_polls_after_a_burst_of_ends(clock: Clock, last: float) -> None:
    ends = [*(10 + n / 20 for n in range(50)), *(last - n / 20 for n in range(50))]
    polls = simulate(clock, ends, until=60)
    assert polls[-1] - last < SHORTEST_S / 2
    assert len(polls) <= 6


def test_polls_regularly_during_a_steady_stream_of_ends(clock: Clock) -> None:
    polls = simulate(clock, [n / 10 for n in range(1, 1200)], until=200)
    gaps = [later - earlier for earlier, later in pairwise(polls)]
    assert max(gaps) <= 6 * SHORTEST_S + 0.3
