"""CPUs are lent in whole physical cores."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.measure import machine
from foretell.schedulers.core_allocation import CpuPool


@pytest.fixture
def smt_pool(monkeypatch: pytest.MonkeyPatch) -> CpuPool:
    """Four cores of two threads each: (0, 4), (1, 5), (2, 6), (3, 7)."""
    monkeypatch.setattr(machine, "_siblings", lambda cpu: {cpu % 4, cpu % 4 + 4})
    return CpuPool(range(8))


def test_runs_do_not_share_a_physical_core(smt_pool: CpuPool) -> None:
    assert [smt_pool.lend(1), smt_pool.lend(2)] == [(0,), (1, 2)]
    assert smt_pool.has_room(1)
    assert not smt_pool.has_room(2)


def test_more_than_the_physical_cores_take_siblings(smt_pool: CpuPool) -> None:
    assert smt_pool.lend(6) == (0, 1, 2, 3, 4, 5)
    assert not smt_pool.has_room(1)


def test_more_than_there_are_never_fit(smt_pool: CpuPool) -> None:
    assert smt_pool.fits(8)
    assert not smt_pool.fits(9)
    assert not smt_pool.fits(0)


@given(st.lists(st.integers(1, 10)), st.data())
def test_no_cpu_is_lent_twice_and_all_come_back(counts: Any, data: Any) -> None:
    pool = CpuPool([10, 11, 12, 13, 14])
    lent: list[tuple[int, ...]] = []
    for count in counts:
        if pool.has_room(count):
            lent.append(pool.lend(count))
            assert len(lent[-1]) == count
        elif lent:
            pool.give_back(lent.pop(data.draw(st.integers(0, len(lent) - 1))))
        taken = [cpu for cpus in lent for cpu in cpus]
        assert len(taken) == len(set(taken)) <= 5
    for cpus in lent:
        pool.give_back(cpus)
    assert pool.has_room(5)
