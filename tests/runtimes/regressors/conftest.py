from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the models are fitted for real: on few rows, threads only wait for each other."""
    with threadpool_limits(1):
        yield
