"""When Slurm is asked: never twice within the shortest interval, promptly at the end, rarely in between."""

from itertools import pairwise

import pytest

from foretell.schedulers.slurm import tracking as pace
from foretell.schedulers.slurm.tracking import Pace

SHORTEST_S = 3.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


def follow(clock: Clock, ends: list[float], *, until: float) -> list[float]:
    """When Slurm is asked about runs that end at these moments, and are then known to it."""
    pacing, asked, known = Pace(SHORTEST_S), [], 0
    start = clock.now
    while clock.now - start <= until:
        ended = sum(end <= clock.now - start for end in ends)
        if known < len(ends) and pacing.is_due(ended=ended - known, left=len(ends) - known):
            asked.append(clock.now - start)
            pacing.note(changed=ended > known)
            known = ended
        clock.now += 0.2
    assert known == len(ends)
    return asked


def test_it_is_asked_at_once_and_then_less_and_less_often_while_nothing_ends(clock: Clock) -> None:
    asked = follow(clock, [600.0], until=640)
    gaps = [round(later - earlier) for earlier, later in pairwise(asked)][:-1]
    assert asked[0] == 0
    assert gaps == sorted(gaps)
    assert gaps[-1] == 30


@pytest.mark.parametrize("ends", [[5.0], [5.0 + n / 100 for n in range(200)], [n / 2 for n in range(1, 400)]])
def test_it_is_never_asked_twice_within_the_shortest_interval(clock: Clock, ends: list[float]) -> None:
    asked = follow(clock, ends, until=300)
    assert min(later - earlier for earlier, later in pairwise(asked)) >= SHORTEST_S - 1e-6


@pytest.mark.parametrize("last", [20.0, 21.3, 22.9, 24.0])
def test_a_burst_of_ends_is_asked_about_once_it_is_over(clock: Clock, last: float) -> None:
    ends = [*(10 + n / 20 for n in range(50)), *(last - n / 20 for n in range(50))]
    asked = follow(clock, ends, until=60)
    assert asked[-1] - last < SHORTEST_S / 2
    assert len(asked) <= 6


def test_a_steady_stream_of_ends_is_told_of_now_and_then(clock: Clock) -> None:
    asked = follow(clock, [n / 10 for n in range(1, 1200)], until=200)
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert max(gaps) <= 6 * SHORTEST_S + 0.3
