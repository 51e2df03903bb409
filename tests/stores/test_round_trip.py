from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.stores import build_owner

from foretell.core.app import Scale
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.stores import RunStore, open_store

_anything = st.text(st.characters())  # half characters and NUL included
_plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_number = st.floats(allow_nan=False)
_figure = st.none() | st.floats(allow_nan=False, allow_infinity=False)
_count = st.none() | st.integers(0, 2**63 - 1)
_value = st.booleans() | st.integers() | _number | _anything
_moment = st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))

_specs = st.builds(
    RunSpec,
    app=_plain,
    parameters=st.dictionaries(_anything, _value, max_size=4),
    allocation=st.builds(
        Allocation, cores=st.integers(), memory_bytes=_count, partition=st.none() | _anything, walltime_s=_figure
    ),
    scale=st.sampled_from(Scale),
    repetition=st.integers(0, 2**31 - 1),
)
_usages = st.builds(
    Usage,
    elapsed_s=st.floats(allow_nan=False, allow_infinity=False),
    cpu_s=_figure,
    peak_memory_bytes=_count,
    read_bytes=_count,
    gpu_utilisation=_figure,
)
_runs = st.builds(
    Run,
    spec=_specs,
    state=st.sampled_from([state for state in State if state.final]),
    usage=st.none() | _usages,
    phases=st.dictionaries(_anything, _number, max_size=3),
    machine=st.builds(
        Machine, hostname=_anything, load=st.none() | _number, extra=st.dictionaries(_anything, _value, max_size=3)
    ),
    exit_code=st.none() | st.integers(-(2**31), 2**31 - 1),
    log_tail=_plain,
    reason=_plain,
    started_at=_moment,
    ended_at=_moment,
    source=_plain,
)


@pytest.fixture(scope="module")
def memory() -> Iterator[RunStore]:
    with open_store("sqlite://") as store:
        yield store


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[RunStore]:
    with open_store(postgres_url) as store:
        yield store


@settings(deadline=None)
@given(_runs)
def test_any_run_comes_back_equal_from_sqlite(memory: RunStore, run: Any) -> None:
    _check_round_trip(memory, run)


@pytest.mark.postgres
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(_runs)
def test_any_run_comes_back_equal_from_postgres(postgres: RunStore, run: Any) -> None:
    _check_round_trip(postgres, run)


def _check_round_trip(store: RunStore, run: Run) -> None:
    store.delete_runs([run.id])
    assert store.claim(run.spec, build_owner())
    assert store.claims(run.spec.app)[-1].spec == run.spec
    assert store.finish(run, build_owner())
    found = store.get_run(run.id)
    assert found == run
    assert found.id == run.id
