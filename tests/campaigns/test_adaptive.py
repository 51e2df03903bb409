"""Adaptive campaigns: they end, resume, share a store, and make no run twice."""

import threading
from pathlib import Path

import pytest

import foretell
from foretell.apps.sweep import build_sweep
from foretell.campaigns.campaign_plan import CampaignResult, Ending, Progress
from foretell.core.app import App
from foretell.core.run import Run, RunSpec, State, Usage
from foretell.schedulers.local import LocalRunner

pytestmark = pytest.mark.slow

TEXT = """
name: law
shell: 'echo "$PARAM_n $PARAM_m" >> "$PARAM_app_dir/diary.txt"'
parameters:
  n: {type: integer, sd: [1, 2, 4], fs: [10, 20], target: {from: 10, to: 20}}
  m: {type: integer, sd: [1, 2, 3], fs: [3, 6], target: {from: 3, to: 6}}
"""
WHOLE = 13


@pytest.fixture
def app(tmp_path: Path) -> App:
    (tmp_path / "foretell.yaml").write_text(TEXT)
    return foretell.load_app(tmp_path / "foretell.yaml")


@pytest.fixture(autouse=True)
def by_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real runs with times from a formula."""
    poll = LocalRunner.poll

    def measure(runner: LocalRunner, timeout_s: float) -> list[Run]:
        return [
            Run(spec=run.spec, state=run.state, usage=Usage(elapsed_s=law(run.spec))) for run in poll(runner, timeout_s)
        ]

    monkeypatch.setattr(LocalRunner, "poll", measure)


def law(spec: RunSpec) -> float:
    return 0.01 * float(spec.parameters["n"]) * float(spec.parameters["m"])


def read_diary(app: App) -> list[str]:
    return (Path(app.directory) / "diary.txt").read_text().splitlines()


def test_it_ends_and_a_second_campaign_makes_nothing(app: App) -> None:
    first = foretell.generate(app, adaptive=True)
    assert first.ending is Ending.NO_LONGER_PAYS
    assert first.width is not None
    assert 0 < first.width < 0.2
    assert first.completed == len(read_diary(app)) < WHOLE
    again = foretell.generate(app, adaptive=True)
    assert (again.completed, again.ending) == (0, Ending.NO_LONGER_PAYS)
    assert foretell.generate(app).completed == WHOLE - first.completed
    assert len(set(read_diary(app))) == len(read_diary(app)) == WHOLE
    assert foretell.generate(app, adaptive=True).ending is Ending.NOTHING_LEFT


def test_it_ends_at_the_requested_precision(app: App) -> None:
    result = foretell.generate(app, until=0.9)
    assert result.ending is Ending.NARROW_ENOUGH
    assert result.width is not None
    assert result.width <= 0.9


def test_interrupted_it_makes_the_runs_it_would_have_made(app: App, tmp_path: Path) -> None:
    with foretell.open_store(tmp_path / "whole.db") as store:
        foretell.generate(app, store=store, adaptive=True, jobs=1)
    whole = read_diary(app)
    (tmp_path / "diary.txt").unlink()

    def interrupt(progress: Progress) -> None:
        if progress.last is not None and progress.done == 3:
            raise KeyboardInterrupt

    with foretell.open_store(tmp_path / "parts.db") as store:
        assert foretell.generate(app, store=store, adaptive=True, jobs=1, on_progress=interrupt).stopped
        foretell.generate(app, store=store, adaptive=True, jobs=1)
    assert sorted(read_diary(app)) == sorted(whole)


def test_two_campaigns_at_once_make_no_run_twice(app: App, tmp_path: Path) -> None:
    results: list[CampaignResult] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(foretell.generate(app, store=tmp_path / "store.db", adaptive=True))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(read_diary(app))) == len(read_diary(app)) == sum(result.completed for result in results)


def test_a_plan_has_the_next_runs_and_how_many_may_follow(app: App) -> None:
    plan = foretell.plan(app, adaptive=True)
    assert 0 < len(plan.specs) < WHOLE
    assert plan.undecided == WHOLE - len(plan.specs)
    assert (plan.width, plan.ending) == (None, None)
    foretell.generate(app, adaptive=True)
    after = foretell.plan(app, adaptive=True)
    assert (after.specs, after.ending) == ((), Ending.NO_LONGER_PAYS)
    assert after.width is not None


def test_progress_reports_the_width_of_intervals(app: App) -> None:
    seen: list[Progress] = []
    foretell.generate(app, adaptive=True, on_progress=seen.append)
    assert {progress.total for progress in seen} == {WHOLE}
    assert seen[0].width is None
    last = seen[-1]
    assert last.width is not None
    assert last.width_after is not None
    assert last.used_s > 0


def test_a_budget_ends_it(app: App) -> None:
    result = foretell.generate(app, adaptive=True, budget_s=1e-6)
    assert (result.completed, result.ending) == (0, Ending.BUDGET)


@pytest.mark.parametrize("retry_failed", [False, True])
def test_failed_runs_are_made_again_once_when_asked(app: App, tmp_path: Path, retry_failed: bool) -> None:
    failing = TEXT.replace("diary.txt\"'", 'diary.txt"; test "$PARAM_m" != 1\'')
    (tmp_path / "foretell.yaml").write_text(failing)
    first = foretell.generate(tmp_path / "foretell.yaml", adaptive=True)
    assert first.failed > 0
    made = len(read_diary(app))
    second = foretell.generate(tmp_path / "foretell.yaml", adaptive=True, retry_failed=retry_failed)
    assert second.failed <= (first.failed if retry_failed else 0)
    assert len(read_diary(app)) - made == second.completed + second.failed


def test_imported_runs_are_used(app: App, tmp_path: Path) -> None:
    with foretell.open_store(tmp_path / "store.db") as store:
        store.add_runs(
            Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=law(spec))) for spec in build_sweep(app)[:-1]
        )
    plan = foretell.plan(app, store=tmp_path / "store.db", adaptive=True)
    assert plan.width is not None
    assert plan.stored == WHOLE - 1
