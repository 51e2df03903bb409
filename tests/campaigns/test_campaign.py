"""Campaigns with the Python API: plans, budgets, retries, and a store that fails."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

import foretell
from foretell.apps.sweep import build_sweep
from foretell.core.app import App
from foretell.core.errors import StoreError
from foretell.core.run import Run, State, Usage
from foretell.schedulers.local import LocalRunner


def load(folder: Path, text: str) -> App:
    (folder / "foretell.yaml").write_text(text)
    return foretell.load_app(folder / "foretell.yaml")


def count_starts(folder: Path) -> int:
    return len((folder / "diary.txt").read_text().splitlines())


DIARY = 'echo "$PARAM_n" >> "$PARAM_app_dir/diary.txt"'


@pytest.fixture
def slow(tmp_path: Path) -> App:
    """Sixty runs of ``n`` seconds, every tenth of which is stored."""
    app = load(tmp_path, 'name: slow\nshell: "sleep $PARAM_n"\nparameters: {n: {values: {from: 1, to: 60, step: 1}}}\n')
    with foretell.open_store(tmp_path / "store.db") as store:
        store.add_runs(
            Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=float(spec.parameters["n"])))
            for spec in build_sweep(app)
            if spec.parameters["n"] % 10 == 0
        )
    return app


@pytest.mark.parametrize("budget_s", [30, 120, 600])
def test_a_budget_is_kept_cheap_runs_first(slow: App, tmp_path: Path, budget_s: int) -> None:
    plan = foretell.plan(slow, store=tmp_path / "store.db", budget_s=budget_s, jobs=1)
    lengths = [float(spec.parameters["n"]) for spec in plan.specs]
    assert 0 < sum(lengths) <= budget_s * 1.05
    assert plan.expected_s <= budget_s
    assert lengths == sorted(lengths)
    assert (plan.stored, plan.left_out) == (6, 54 - len(lengths))


def test_without_a_budget_everything_is_planned(slow: App, tmp_path: Path) -> None:
    plan = foretell.plan(slow, store=tmp_path / "store.db")
    assert (len(plan.specs), plan.left_out) == (54, 0)
    assert plan.expected_s == pytest.approx((1830 - 210) / plan.at_once, rel=0.05)
    assert plan.core_h == pytest.approx((1830 - 210) / 3600, rel=0.05)


def test_a_budget_ends_a_campaign_that_another_continues(tmp_path: Path) -> None:
    app = load(
        tmp_path,
        f"name: b\nshell: '{DIARY}; sleep 0.05'\nparameters: {{n: {{values: {{from: 1, to: 400, step: 1}}}}}}\n",
    )
    first = foretell.generate(app, budget_s=1)
    assert 0 < first.completed < 400
    second = foretell.generate(app, budget_s=1)
    assert first.completed + second.completed == count_starts(tmp_path) == foretell.list_runs(app).total


def test_failed_runs_are_made_again_once_when_asked(tmp_path: Path) -> None:
    app = load(
        tmp_path, f"name: f\nshell: '{DIARY}; test \"$PARAM_n\" != 2'\nparameters: {{n: {{values: [1, 2, 3]}}}}\n"
    )
    results = [foretell.generate(app, retry_failed=retry) for retry in (False, False, True, False)]
    assert [(result.completed, result.failed) for result in results] == [(2, 1), (0, 0), (0, 1), (0, 0)]
    assert count_starts(tmp_path) == 4
    (tmp_path / "foretell.yaml").write_text(f"name: f\nshell: '{DIARY}'\nparameters: {{n: {{values: [1, 2, 3]}}}}\n")
    fixed = foretell.generate(tmp_path / "foretell.yaml", retry_failed=True, keep_runs=True)
    assert (fixed.completed, fixed.failed) == (1, 0)
    assert {run.state for run in foretell.list_runs(app).runs} == {State.COMPLETED}


def test_a_run_past_its_limit_is_longer_than_it(tmp_path: Path) -> None:
    app = load(tmp_path, "name: t\ncommand: [sleep, 60]\ntime_limit: 300ms\n")
    assert foretell.generate(app).failures[0].state is State.TIMED_OUT
    (run,) = foretell.list_runs(app).runs
    assert run.usage.elapsed_s == pytest.approx(0.3, abs=1e-6)


@contextmanager
def full_disk(statement: str) -> Iterator[None]:
    """Let every such statement fail with SQLite's error for a full disk."""

    def fail(connection: Connection, _cursor: object, sql: str, *_: object) -> None:
        if sql.startswith(statement):
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
            connection.exec_driver_sql("CREATE TABLE too_much (x)")

    sa.event.listen(sa.Engine, "before_cursor_execute", fail)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", fail)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_result_that_could_not_be_stored_is_stored_later(tmp_path: Path, jobs: int) -> None:
    app = load(tmp_path, f"name: d\nshell: '{DIARY}; sleep 0.05'\nparameters: {{n: {{values: [1, 2, 3, 4]}}}}\n")
    with full_disk("UPDATE runs"), pytest.raises(StoreError, match=r"disk is full(.|\n)*stores it"):
        foretell.generate(app, jobs=jobs)
    assert foretell.list_runs(app, states=[State.COMPLETED]).total == 0
    result = foretell.generate(app, jobs=jobs)
    assert result.recovered >= 1
    assert result.completed + result.recovered == 4
    assert {run.state for run in foretell.list_runs(app).runs} == {State.COMPLETED}


def test_jobs_limits_parallel_runs(tmp_path: Path) -> None:
    app = load(tmp_path, "name: j\ncommand: [sleep, 0.1]\nrepetitions: 4\n")
    seen = []
    foretell.generate(app, jobs=1, on_progress=lambda progress: seen.append(len(progress.running)))
    assert max(seen) == 1


def test_ctrl_c_while_a_run_is_stored_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = load(tmp_path, "name: c\ncommand: ['true']\nrepetitions: 4\n")
    release = LocalRunner._release

    def interrupted(runner: LocalRunner, job: object) -> None:
        monkeypatch.setattr(LocalRunner, "_release", release)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalRunner, "_release", interrupted)
    assert "again" in foretell.generate(app).stopped
    assert foretell.list_runs(app, states=[State.RUNNING]).total == 0
    assert not foretell.generate(app).stopped
    assert foretell.list_runs(app, states=[State.COMPLETED]).total == 4


def test_parallel_campaigns_share_the_cores(tmp_path: Path) -> None:
    """Two processes start runs independently; together they use no more than the cores."""
    cores = len(os.sched_getaffinity(0))
    folders = [tmp_path / name for name in ("a", "b")]
    count = 'ls "$PARAM_app_dir/.." | grep -c busy >> "$PARAM_app_dir/seen"'
    for folder in folders:
        folder.mkdir()
        mark = f'"$PARAM_app_dir/../busy-{folder.name}-$PARAM_n"'
        shell = f"touch {mark}; {count}; sleep 0.2; rm {mark}"
        values = list(range(3 * cores))
        (folder / "foretell.yaml").write_text(f"name: s\nshell: '{shell}'\nparameters: {{n: {{values: {values}}}}}\n")
    code = "import sys, foretell; print(foretell.generate(foretell.load_app(sys.argv[1])).completed)"
    words = [[sys.executable, "-c", code, str(folder / "foretell.yaml")] for folder in folders]
    both = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in words]
    assert [one.communicate()[0].strip() for one in both] == [str(3 * cores)] * 2
    assert max(int(line) for folder in folders for line in (folder / "seen").read_text().split()) <= cores


def test_a_campaign_writes_a_private_log(tmp_path: Path) -> None:
    app = load(tmp_path, "name: c\nshell: 'exit 3'\n")
    result = foretell.generate(app)
    log = Path(result.log)
    assert log.parent.parent.parent == tmp_path / ".foretell"
    assert log.stat().st_mode & 0o077 == 0
    (run,) = foretell.list_runs(app).runs
    assert f"run {run.id} ended: failed, ended with exit code 3" in log.read_text("utf-8")
    assert logging.getLogger("foretell").handlers == []


def test_the_log_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.campaigns.api._LOG_BYTES", 500)
    app = load(tmp_path, "name: c\ncommand: ['true']\nrepetitions: 6\n")
    log = Path(foretell.generate(app).log)
    files = sorted(log.parent.iterdir())
    assert [path.name for path in files] == ["campaign.log", "campaign.log.1"]
    assert all(path.stat().st_size <= 500 for path in files)


def test_the_log_does_not_change_what_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("foretell")
    levels = root.level, ours.level  # libraries that other tests import may have changed them
    handler = logging.StreamHandler()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.NOTSET)
    try:
        foretell.generate(load(tmp_path, "name: c\ncommand: ['true']\n"))
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
    assert capfd.readouterr().err == ""
    assert handler.level == logging.NOTSET
