"""Plans of runs on a cluster, and two campaigns at once."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.schedulers.slurm.campaigns import Sweep, wait_for

import foretell
from foretell.core.app import Submission
from foretell.core.errors import RunnerError

MINUTE_S = 60.0


@pytest.mark.parametrize(
    ("more", "options", "rounds"),
    [
        ("", {}, 1),  # two nodes of 28 cores
        ("resources: {cores: [28]}\n", {}, 4),
        ("resources: {cores: [14]}\n", {}, 2),
        ("resources: {nodes: [2]}\n", {}, 1),
        ("resources: {nodes: [2], cores: [28]}\n", {}, 8),
        ("", {"exclusive": ""}, 4),
    ],
)
def test_the_longest_duration_uses_each_runs_limit(
    fake_slurm: FakeSlurm, tmp_path: Path, more: str, options: dict[str, str], rounds: int
) -> None:
    sweep = Sweep.build(tmp_path, count=8, more=f"time_limit: 1m\n{more}")
    plan = foretell.plan(sweep.app, submission=Submission(options=options))
    assert plan.limit_s == rounds * MINUTE_S


def test_the_longest_local_duration_uses_cores_and_jobs(tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, count=8, more="time_limit: 1m\n")
    assert foretell.plan(sweep.app, runner="local", jobs=1).limit_s == 8 * MINUTE_S


@pytest.mark.parametrize(
    ("more", "obstacle"),
    [
        ("time_limit: 2h\n", "it requests 2 h 02 min; the limit is 1 h 00 min"),
        ("resources: {cores: [49]}\n", "it requests 49 cores; a node has"),
        ("resources: {memory: [9TB]}\n", "of memory; a node has"),
    ],
)
def test_a_dry_run_reports_what_the_partition_refuses(
    fake_slurm: FakeSlurm, tmp_path: Path, more: str, obstacle: str
) -> None:
    sweep = Sweep.build(tmp_path, count=3, more=more)
    where = Submission(partition="debug")
    ((why, number),) = foretell.plan(sweep.app, submission=where).obstacles.items()
    assert obstacle in why
    assert number == 3
    with pytest.raises(RunnerError, match=obstacle):
        foretell.generate(sweep.app, submission=where)
    assert sweep.list_jobs() == []


def test_what_fits_has_no_obstacle(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    sweep = Sweep.build(tmp_path, more="time_limit: 30m\n")
    assert foretell.plan(sweep.app, submission=Submission(partition="debug")).obstacles == {}


def test_two_campaigns_that_start_together_wait_for_all_runs(
    fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second plans the same runs and finds that they are taken when it submits."""
    from foretell.stores.sql import SqlStore

    sweep = Sweep.build(tmp_path)
    sweep.hold()
    submit = SqlStore.open_batch
    others: list[Any] = []

    def submit_late(store: SqlStore, batch: Any, specs: Any, *, retry: Any = ()) -> Any:
        if not others:
            others.append(foretell.generate(sweep.app))
        return submit(store, batch, specs, retry=retry)

    def start_first(store: SqlStore, batch: Any, specs: Any, *, retry: Any = ()) -> Any:
        monkeypatch.setattr(SqlStore, "open_batch", submit)
        return submit_late(store, batch, specs, retry=retry)

    monkeypatch.setattr(SqlStore, "open_batch", start_first)
    results = []
    late = threading.Thread(target=lambda: results.append(foretell.generate(sweep.app, wait=True)))
    late.start()
    wait_for(lambda: bool(others) and len(sweep.diary) == sweep.count)
    assert others[0].submitted == sweep.count
    assert not results
    sweep.release()
    late.join(60)
    assert results[0].completed == sweep.count
    sweep.check()


@pytest.mark.parametrize("name", ["test-only", "wait", "wrap", "parsable", "help", "usage", "version"])
def test_options_with_which_sbatch_submits_nothing_are_refused(
    foretell: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    Sweep.build(tmp_path)
    outcome = foretell("generate", "--runner", "slurm", "--option", name, folder=tmp_path)
    assert outcome.code == 1
    assert f"'{name}'" in outcome.err
    in_file = Sweep.build(tmp_path, more=f"slurm: {{options: {{{name}: ''}}}}\n")
    assert f"{name}" in foretell("check", str(in_file.file), folder=tmp_path).err
