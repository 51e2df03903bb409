"""What is asked for after a request that was too small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.advice.execution import Ceiling, Doubling, LeastCost, RaisePolicy, raise_request
from foretell.core.prediction import Request
from foretell.core.run import Allocation, State

GIGABYTE = 2**30
ASKED = Allocation(cores=4, memory_bytes=2 * GIGABYTE, walltime_s=600.0, partition="cpu")
PLANNED = Request(
    walltime_s=600.0,
    memory_bytes=2 * GIGABYTE,
    retries_walltime_s=(900.0, 2400.0),
    retries_memory=(3 * GIGABYTE, 8 * GIGABYTE),
)
POLICIES = [Doubling(), LeastCost(PLANNED)]


@pytest.mark.parametrize("by", POLICIES)
@given(walltime=st.integers(1, 10**6), memory=st.integers(1, 2**45), state=st.sampled_from(sorted(State)))
def test_only_what_ran_out_is_raised(by: RaisePolicy, walltime: int, memory: int, state: State) -> None:
    asked = Allocation(cores=4, walltime_s=float(walltime), memory_bytes=memory)
    raised = raise_request(asked, state, by=by, ceiling=Ceiling())
    if state not in (State.TIMED_OUT, State.OUT_OF_MEMORY):
        assert raised == ""
        return
    assert isinstance(raised, Allocation)
    assert raised.cores == asked.cores
    assert (raised.walltime_s > asked.walltime_s) == (state is State.TIMED_OUT)
    assert (raised.memory_bytes > asked.memory_bytes) == (state is State.OUT_OF_MEMORY)


def test_doubling_is_harps() -> None:
    asked, ladder = ASKED, []
    for _ in range(3):
        raised = raise_request(asked, State.TIMED_OUT, by=Doubling(), ceiling=Ceiling())
        assert isinstance(raised, Allocation)
        asked = raised
        ladder.append(asked.walltime_s)
    assert ladder == [1200.0, 2400.0, 4800.0]


def test_the_plan_is_followed_and_doubled_at_its_end() -> None:
    asked, ladder = ASKED, []
    for _ in range(3):
        raised = raise_request(asked, State.OUT_OF_MEMORY, by=LeastCost(PLANNED), ceiling=Ceiling())
        assert isinstance(raised, Allocation)
        asked = raised
        ladder.append(asked.memory_bytes)
    assert ladder == [3 * GIGABYTE, 8 * GIGABYTE, 16 * GIGABYTE]


def test_the_ceiling_is_asked_for_once() -> None:
    ceiling = Ceiling(walltime_s=700.0, memory_bytes=5 * GIGABYTE)
    raised = raise_request(ASKED, State.TIMED_OUT, by=Doubling(), ceiling=ceiling)
    assert isinstance(raised, Allocation)
    assert raised.walltime_s == 700.0
    assert raise_request(raised, State.TIMED_OUT, by=Doubling(), ceiling=ceiling) == (
        "it ran out of time, and 11 min 40 s is the most that may be requested"
    )
    full = Allocation(memory_bytes=5 * GIGABYTE, walltime_s=60.0)
    assert "5 GB is the most" in str(raise_request(full, State.OUT_OF_MEMORY, by=Doubling(), ceiling=ceiling))
