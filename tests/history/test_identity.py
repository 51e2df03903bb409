"""A job is stored once, from any texts in any order."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from foretell.history.api import import_history, list_history_apps
from foretell.stores import open_store
from foretell.stores._engine import build_engine, parse_address
from foretell.stores.job_history import JobFilter, JobHistory

FULL = (
    "JobID", "JobIDRaw", "Cluster", "User", "Account", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw",
    "AllocTRES", "NTasks", "NNodes", "MaxRSS", "JobName", "WorkDir", "SubmitLine",
)  # fmt: skip
WITHOUT_IDS = tuple(name for name in FULL if name not in ("JobIDRaw", "Cluster"))
WITHOUT_SUBMISSION = tuple(name for name in WITHOUT_IDS if name != "Submit")
FEW = ("JobID", "State", "ElapsedRaw", "User", "JobName")
STEPS = ("MaxRSS", "NTasks", "NNodes")


def build_job(
    job_id: str, raw: int, *, cluster: str = "c1", state: str = "COMPLETED", hour: int = 10
) -> dict[str, str]:
    minute, day = f"{raw % 60:02d}", "2025-03-01"
    return {
        "JobID": job_id, "JobIDRaw": str(raw), "Cluster": cluster, "User": "ada", "Account": "a1", "Partition": "cpu",
        "State": state, "Submit": f"{day}T{hour:02d}:00:{minute}", "Start": f"{day}T{hour + 1:02d}:{minute}:00",
        "End": f"{day}T{hour + 2:02d}:{minute}:07", "ElapsedRaw": str(3607 + raw), "AllocTRES": "cpu=8,mem=8G,node=1",
        "JobName": "train", "WorkDir": "/u/ada", "SubmitLine": "sbatch t.sh --epochs 3",
    }  # fmt: skip


def build_jobs(*, cluster: str = "c1") -> list[dict[str, str]]:
    """Single jobs, an array, a heterogeneous job, and an attempt before a requeue."""
    array = [build_job(f"20_{task}", 20 + task if task else 30, cluster=cluster) for task in range(5)]
    plain = [build_job(str(number), number, cluster=cluster) for number in range(10, 14)]
    group = [build_job("40+0", 40, cluster=cluster), build_job("40+1", 41, cluster=cluster)]
    attempts = [build_job("50", 50, state="REQUEUED", cluster=cluster), build_job("50", 50, hour=15, cluster=cluster)]
    return [*plain, *array, *group, *attempts]


def write(path: Path, jobs: Sequence[dict[str, str]], names: Sequence[str]) -> Path:
    lines = ["|".join(names)]
    for job in jobs:
        lines.append("|".join("" if name in STEPS else job.get(name, "") for name in names))
        if "MaxRSS" in names:
            step = {
                "JobID": f"{job['JobID']}.batch",
                "State": "COMPLETED",
                "MaxRSS": "100K",
                "NTasks": "1",
                "NNodes": "1",
            }
            lines.append("|".join(step.get(name, "") for name in names))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def read_stored(store: str, *names: str) -> list[tuple[object, ...]]:
    with open_store(store) as opened:
        columns = JobHistory(opened).read(JobFilter(), names)
    return sorted(zip(*(columns[name].tolist() for name in names), strict=True))


SEEN = ("job", "task", "submitted_at", "state", "elapsed_s", "cores", "peak_memory_bytes", "user", "command")


@pytest.mark.parametrize("poor", [WITHOUT_IDS, WITHOUT_SUBMISSION, FEW], ids=["no ids", "no submission", "few"])
@pytest.mark.parametrize("full_first", [True, False], ids=["full first", "full last"])
def test_the_same_jobs_from_texts_with_many_and_few_columns_are_merged(
    store: str, tmp_path: Path, poor: Any, full_first: bool
) -> None:
    jobs = build_jobs()
    full, other = write(tmp_path / "full.txt", jobs, FULL), write(tmp_path / "poor.txt", jobs, poor)
    alone = str(tmp_path / "alone.db")
    import_history([full], store=alone)
    for source in [full, other] if full_first else [other, full]:
        result = import_history([source], store=store)
        assert result.complaints == ()
    assert len(read_stored(store, "job")) == len(jobs)
    assert read_stored(store, *SEEN) == read_stored(alone, *SEEN)
    assert [import_history([source], store=store).changed for source in (full, other)] == [0, 0]


def test_three_texts_in_any_order_make_the_same_store(tmp_path: Path) -> None:
    jobs = build_jobs()
    sources = [write(tmp_path / f"{len(names)}.txt", jobs, names) for names in (FULL, WITHOUT_IDS, WITHOUT_SUBMISSION)]
    found = []
    for number, order in enumerate(permutations(sources)):
        import_history(order, store=tmp_path / f"{number}.db")
        found.append(read_stored(str(tmp_path / f"{number}.db"), *SEEN))
    assert len(found[0]) == len(jobs)
    assert all(rows == found[0] for rows in found)


def test_a_text_without_cluster_finds_its_jobs_among_several(store: str, tmp_path: Path) -> None:
    one, two = (
        build_jobs(cluster="c1"),
        [{**job, "Submit": "2025-04-02T09:00:00"} for job in build_jobs(cluster="c2")[:9]],
    )
    import_history([write(tmp_path / "both.txt", [*one, *two], FULL)], store=store)
    result = import_history([write(tmp_path / "poor.txt", two, WITHOUT_IDS)], store=store)
    assert (result.changed, len(read_stored(store, "job"))) == (0, len(one) + len(two))


def test_an_ambiguous_job_is_left_out_and_reported_each_time(store: str, tmp_path: Path) -> None:
    jobs = [build_job("7", 7, cluster="c1"), build_job("7", 7, cluster="c2"), build_job("8", 8, cluster="c2")]
    import_history([write(tmp_path / "both.txt", jobs, FULL)], store=store)
    poor = write(tmp_path / "poor.txt", jobs[1:], WITHOUT_IDS)
    for _ in range(2):
        result = import_history([poor], store=store)
        (complaint,) = result.complaints
        assert (result.jobs, complaint.count, "several stored jobs could be it" in complaint.reason) == (1, 1, True)
    assert len(read_stored(store, "job")) == 3
    named = import_history([poor], store=store, cluster="c2")
    assert (named.complaints, named.changed) == ((), 0)


def test_another_attempt_is_another_job_also_without_its_submission_time(store: str, tmp_path: Path) -> None:
    attempts = [build_job("50", 50, state="NODE_FAIL"), build_job("50", 50, hour=15)]
    import_history([write(tmp_path / "first.txt", attempts[:1], FULL)], store=store)
    import_history([write(tmp_path / "both.txt", attempts, WITHOUT_SUBMISSION)], store=store)
    assert [state for _, state in read_stored(store, "submitted_at", "state")] == ["interrupted", "completed"]


@pytest.mark.parametrize("seed", range(5))
def test_texts_with_any_part_of_jobs_and_columns(tmp_path: Path, seed: int) -> None:
    """Texts of random parts: if submission times are given, the store has each job once."""
    draw = random.Random(seed)
    jobs, store = build_jobs(), tmp_path / "s.db"
    for number in range(6):
        some = draw.sample(jobs, k=draw.randint(1, len(jobs)))
        dropped = draw.sample([name for name in FULL if name not in ("JobID", "State", "ElapsedRaw", "Submit")], k=8)
        names = [name for name in FULL if name not in dropped]
        draw.shuffle(names)
        import_history([write(tmp_path / f"{number}.txt", some, names)], store=store)
    import_history([write(tmp_path / "all.txt", jobs, FULL)], store=store)
    assert len(read_stored(str(store), "job")) == len(jobs)


@pytest.fixture
def old_store(store: str) -> Iterator[tuple[str, Callable[..., None]]]:
    """A store with version 0003 of the tables, and a function that adds a job to it."""
    engine = build_engine(parse_address(store))
    config = Config()
    config.set_main_option("script_location", "foretell.stores:migrations")
    with engine.execution_options(write=True).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")

    def add(cluster: str, job: int, task: int, row: dict[str, str]) -> None:
        _add_old(engine, cluster, job, task, row)

    yield store, add
    engine.dispose()


def _add_old(engine: sa.Engine, cluster: str, job: int, task: int, row: dict[str, str]) -> None:
    moments = {name: datetime.fromisoformat(row[name]) for name in ("Submit", "Start", "End")}
    seconds = {name: int((moment - datetime(1970, 1, 1)).total_seconds()) for name, moment in moments.items()}
    statements = [
        "INSERT INTO job_clusters (name) VALUES (:cluster) ON CONFLICT DO NOTHING",
        "INSERT INTO job_kinds VALUES (:kind, :cluster, 'ada', '', '', 'train', '', '', 'ada.train', '{}') "
        "ON CONFLICT DO NOTHING",
        "INSERT INTO jobs (cluster, job, task, submitted_at, kind, state, started_at, ended_at, elapsed_s, nodes, "
        "cores, gpus) VALUES ((SELECT number FROM job_clusters WHERE name = :cluster), :job, :task, :submitted, :kind, "
        "'completed', :started, :ended, :elapsed, 1, 8, 0)",
    ]
    values = {
        "cluster": cluster, "kind": 1 if cluster else 2, "job": job, "task": task, "elapsed": int(row["ElapsedRaw"]),
        "submitted": seconds["Submit"], "started": seconds["Start"], "ended": seconds["End"],
    }  # fmt: skip
    with engine.execution_options(write=True).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement), values)


@pytest.mark.parametrize("names", [FULL, WITHOUT_IDS], ids=["full", "no ids"])
def test_jobs_that_an_older_version_stored_under_raw_ids_are_found(
    old_store: tuple[str, Callable[..., None]], tmp_path: Path, names: Any
) -> None:
    store, add = old_store
    jobs = [job for job in build_jobs() if job["JobID"] != "50"]
    for job in jobs:
        add("c1", int(job["JobIDRaw"]), -1, job)
    import_history([write(tmp_path / "again.txt", jobs, names)], store=store)
    assert read_stored(store, "job", "task") == sorted((row["job"], row["task"]) for row in map(_split_id, jobs))


def test_duplicates_of_an_older_version_are_merged(old_store: tuple[str, Callable[..., None]], tmp_path: Path) -> None:
    store, add = old_store
    jobs = [job for job in build_jobs() if job["JobID"] != "50"]
    for job in jobs:
        parts = _split_id(job)
        add("c1", int(job["JobIDRaw"]), -1, job)
        add("", parts["job"], parts["task"], job)
    plain = sum("_" not in job["JobID"] and "+" not in job["JobID"] for job in jobs)
    assert len(read_stored(store, "job")) == 2 * len(jobs) - plain  # by opening it
    import_history([write(tmp_path / "again.txt", jobs, FULL)], store=store)
    assert [(app.app, app.jobs) for app in list_history_apps(store=store)] == [("ada.train", len(jobs))]


def _split_id(job: dict[str, str]) -> dict[str, int]:
    base, _, task = job["JobID"].replace("+", "_").partition("_")
    return {"job": int(base), "task": int(task or -1)}
