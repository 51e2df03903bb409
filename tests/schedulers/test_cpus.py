"""CPUs are acquired in whole physical cores."""

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
    assert [smt_pool.acquire(1), smt_pool.acquire(2)] == [(0,), (1, 2)]
    assert smt_pool.has_capacity(1)
    assert not smt_pool.has_capacity(2)


def test_more_than_the_physical_cores_take_siblings(smt_pool: CpuPool) -> None:
    assert smt_pool.acquire(6) == (0, 1, 2, 3, 4, 5)
    assert not smt_pool.has_capacity(1)


def test_more_cpus_than_exist_never_fit(smt_pool: CpuPool) -> None:
    assert smt_pool.fits(8)
    assert not smt_pool.fits(9)
    assert not smt_pool.fits(0)


@given(st.lists(st.integers(1, 10)), st.data())
def test_no_cpu_is_acquired_twice_and_all_are_released(counts: Any, data: Any) -> None:
    pool = CpuPool([10, 11, 12, 13, 14])
    acquired: list[tuple[int, ...]] = []
    for count in counts:
        if pool.has_capacity(count):
            acquired.append(pool.acquire(count))
            assert len(acquired[-1]) == count
        elif acquired:
            pool.release(acquired.pop(data.draw(st.integers(0, len(acquired) - 1))))
        taken = [cpu for cpus in acquired for cpu in cpus]
        assert len(taken) == len(set(taken)) <= 5
    for cpus in acquired:
        pool.release(cpus)
    assert pool.has_capacity(5)
