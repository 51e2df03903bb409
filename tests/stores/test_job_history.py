"""Jobs in a store: nothing doubled, nothing half, grouped anew without being read anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretell.core.errors import StoreError
from foretell.core.past_jobs import Assignment, JobKind, JobRow, JobRows
from foretell.core.run import State
from foretell.stores import RunStore, open_store
from foretell.stores.job_history import JobFilter, JobHistory, find_history

KIND = JobKind(cluster="c1", user="ada", name="größe\0\ud800", partition="cpu")
OTHER = JobKind(cluster="c1", user="bob", name="x", partition="gpu")


def build(
    job: int, *, kind: JobKind = KIND, state: str = "completed", elapsed_s: int = 60, submitted: int = 0
) -> JobRow:
    figures: dict[str, Any] = {"started_at": None, "ended_at": 10, "limit_s": None, "nodes": 1, "cores": 4, "gpus": 1}
    unknown: dict[str, Any] = dict.fromkeys(("memory_bytes", "cpu_s", "read_bytes", "written_bytes"))
    return JobRow(
        job=job, task=-1, submitted_at=submitted, kind=kind.id, state=state, elapsed_s=elapsed_s,
        peak_memory_bytes=2**40, **figures, **unknown,
    )  # fmt: skip


def gather(*rows: JobRow, cluster: str = "c1") -> JobRows:
    return JobRows(cluster=cluster, rows=rows, kinds={kind.id: kind for kind in (KIND, OTHER)})


ASSIGNMENTS = {KIND.id: Assignment(app="x", parameters={"n": 3}), OTHER.id: Assignment(app="y")}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    address = str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with open_store(address) as opened:
        yield opened


@pytest.fixture
def history(store: RunStore) -> JobHistory:
    return JobHistory(store)


def test_adding_twice_changes_nothing(history: JobHistory) -> None:
    rows = gather(*map(build, range(5)))
    assert history.add([rows], ASSIGNMENTS, {"a": "1"}).changed == 5
    assert history.add([rows, rows], ASSIGNMENTS, {"a": "2"}).changed == 0
    assert [(app.app, app.jobs, app.gpu_hours) for app in history.apps()] == [("x", 5, 5 / 60)]
    assert history.find_mark("a") == "2"


def test_a_job_that_is_known_differently_is_replaced(history: JobHistory) -> None:
    history.add([gather(build(1), build(2))], ASSIGNMENTS, {})
    assert history.add([gather(build(1), build(2, elapsed_s=90))], ASSIGNMENTS, {}).changed == 1
    assert sorted(history.read(JobFilter(), ["elapsed_s"])["elapsed_s"]) == [60, 90]


def test_cluster_and_moment_are_part_of_the_key(history: JobHistory) -> None:
    batches = [gather(build(1), build(1, submitted=5)), gather(build(1), cluster="c2")]
    assert history.add(batches, ASSIGNMENTS, {}).changed == 3


def test_all_or_nothing(history: JobHistory) -> None:
    nothing: Any = None
    broken = gather(build(1), build(2)._replace(state=nothing))
    with pytest.raises(StoreError):
        history.add([broken], ASSIGNMENTS, {"a": "1"})
    assert (history.apps(), history.find_mark("a")) == ([], None)


def test_grouping_anew_is_a_change_of_kinds(history: JobHistory) -> None:
    history.add([gather(build(1), build(2, kind=OTHER))], ASSIGNMENTS, {})
    kinds = {number: kind for page in history.kinds() for number, kind, _ in page}
    assert kinds[OTHER.id] == OTHER
    assert kinds[KIND.id].name == "größe\\x00\\ud800"
    history.assign({number: Assignment(app="one", parameters={"n": 1}) for number in kinds})
    assert [(app.app, app.jobs, app.kinds, app.users) for app in history.apps()] == [("one", 2, 2, 2)]
    assert history.newest("one", states=[State.COMPLETED], most=1)[0]["parameters"] == {"n": 1}
    assert not history.has_app("x")


def test_the_newest_jobs_of_an_app_in_some_states(history: JobHistory) -> None:
    rows = [build(job, submitted=job, state="failed" if job == 4 else "completed") for job in range(5)]
    history.add([gather(*rows, build(9, submitted=9, elapsed_s=0))], ASSIGNMENTS, {})
    found = history.newest("x", states=[State.COMPLETED], most=2)
    assert [(row["job"], row["partition"], row["parameters"]) for row in found] == [
        (3, "cpu", {"n": 3}),
        (2, "cpu", {"n": 3}),
    ]
    assert history.count("x", states=[State.COMPLETED]) == 4


def test_received_jobs_are_counted_where_a_model_can_learn_from_them(store: RunStore, history: JobHistory) -> None:
    rows = [build(job, state="failed" if job == 4 else "completed") for job in range(5)]
    history.add([gather(*rows)], ASSIGNMENTS, {})
    assert (store.count_received_jobs("x"), store.count_received_jobs("y")) == (4, 0)
    history.add([gather(*rows)], ASSIGNMENTS, {})
    assert store.count_received_jobs("x") == 4
    history.add([gather(build(0, elapsed_s=99), build(7), build(8, kind=OTHER))], ASSIGNMENTS, {})
    assert (store.count_received_jobs("x"), store.count_received_jobs("y")) == (6, 1)
    history.assign({KIND.id: Assignment(app="x"), OTHER.id: Assignment(app="x")})
    assert (store.count_received_jobs("x"), store.count_received_jobs("y")) == (7, 2)


def test_a_value_is_never_replaced_by_an_unknown_one(history: JobHistory) -> None:
    history.add([gather(build(1))], ASSIGNMENTS, {})
    poorer = build(1)._replace(peak_memory_bytes=None, ended_at=None)
    assert history.add([gather(poorer)], ASSIGNMENTS, {}).changed == 0
    assert history.read(JobFilter(), ["peak_memory_bytes"])["peak_memory_bytes"].tolist() == [2**40]


def test_jobs_by_what_they_are(history: JobHistory) -> None:
    history.add([gather(build(1), build(2, kind=OTHER, submitted=50))], ASSIGNMENTS, {})
    assert history.read(JobFilter(user="bob"), ["job", "user"])["job"].tolist() == [2]
    assert history.read(JobFilter(since=10), ["job"])["job"].tolist() == [2]
    assert history.read(JobFilter(until=10, app="x"), ["job", "cpu_s"])["job"].tolist() == [1]
    assert len(history.read(JobFilter(account="none"), ["job", "user"])["job"]) == 0


def test_a_store_of_another_make_keeps_no_history() -> None:
    other: Any = object()
    assert find_history(other) is None
    with pytest.raises(StoreError, match="keeps no history"):
        JobHistory(other)
