"""Limits OpenMP to one thread: threads of tests that run at the same time wait for each other."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    with threadpool_limits(limits=1, user_api="openmp"):
        yield
