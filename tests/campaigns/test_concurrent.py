"""Campaigns with other processes that make the same runs or use the machine, and a store that is unavailable."""

import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.runners import wait_for

import foretell
from foretell.apps.sweep import build_sweep
from foretell.campaigns import waiting as quiet
from foretell.campaigns.campaign_plan import Progress
from foretell.core.app import App
from foretell.core.errors import StoreError
from foretell.core.run import Owner, Run, State, Usage
from foretell.measure.machine import build_owner
from foretell.measure.procfs import find_stat


def load(folder: Path, text: str) -> App:
    (folder / "foretell.yaml").write_text(text)
    return foretell.load_app(folder / "foretell.yaml")


@pytest.fixture
def app(tmp_path: Path) -> App:
    return load(tmp_path, "name: o\ncommand: [echo, '{n}']\nparameters: {n: {values: [1, 2, 3]}}\n")


@pytest.fixture
def other() -> Iterator[Owner]:
    """A live process that makes the same runs."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield replace(build_owner(), token="them", pid=process.pid, started_at=find_stat(process.pid).started_s)
        process.kill()


def take(app: App, owner: Owner, *numbers: int) -> None:
    with foretell.open_store(f"{app.directory}/.foretell/store.db") as store:
        for spec in build_sweep(app):
            assert spec.parameters["n"] not in numbers or store.claim(spec, owner)


def finish(app: App, owner: Owner, number: int, state: State = State.COMPLETED) -> None:
    with foretell.open_store(f"{app.directory}/.foretell/store.db") as store:
        (spec,) = (spec for spec in build_sweep(app) if spec.parameters["n"] == number)
        assert store.finish(Run(spec=spec, state=state, usage=Usage(elapsed_s=1.0)), owner)


def test_without_wait_runs_of_other_processes_are_reported(app: App, other: Owner) -> None:
    take(app, other, 1, 2)
    result = foretell.generate(app)
    assert (result.completed, result.running_elsewhere) == (1, 2)


def test_with_wait_it_waits_for_runs_of_other_processes(app: App, other: Owner) -> None:
    take(app, other, 1, 2)
    notes, results = [], []

    def wait() -> None:
        results.append(foretell.generate(app, wait=True, on_progress=lambda progress: notes.append(progress.note)))

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_for(lambda: any("another process is making 2" in note for note in notes))
    finish(app, other, 1)
    wait_for(lambda: any("another process is making 1" in note for note in notes))
    assert waiting.is_alive()
    finish(app, other, 2, State.FAILED)
    waiting.join(60)
    (result,) = results
    assert (result.completed, result.elsewhere_completed, result.elsewhere_failed) == (1, 1, 1)
    assert result.running_elsewhere == 0


def test_with_wait_it_makes_runs_of_processes_that_died(app: App, other: Owner) -> None:
    take(app, replace(other, started_at=1.0), 1, 2)  # no process started then
    assert foretell.generate(app, wait=True).completed == 3


class Load:
    """The load of other processes, set by the test."""

    cores = 0.0


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Load:
    load = Load()
    monkeypatch.setattr(quiet, "current_load", lambda: load.cores)
    monkeypatch.setattr(quiet, "_PAUSE_S", 0.05)
    return load


def test_a_campaign_waits_for_an_idle_machine(app: App, others: Load) -> None:
    others.cores = 1.8
    notes = []

    def watch(progress: Progress) -> None:
        if progress.note and not progress.running:
            notes.append((progress.note, foretell.list_runs(app).total))
            others.cores = 0.0

    assert foretell.generate(app, wait_quiet_s=60, on_progress=watch).completed == 3
    assert len(notes) == 1
    assert "1.8 cores" in notes[0][0]
    assert notes[0][1] == 0


def test_the_wait_is_limited_and_needs_runs(app: App, others: Load) -> None:
    others.cores = 1.8
    assert foretell.generate(app, wait_quiet_s=0.2).completed == 3
    notes = []
    foretell.generate(app, wait_quiet_s=60, on_progress=lambda progress: notes.append(progress.note))
    assert not any("waiting" in note for note in notes)


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch, others: Load) -> Load:
    """Every run of the first round is disturbed, the second is less so."""
    from foretell.schedulers.local_job import Job

    judge = Job._run_command
    seen: set[str] = set()

    def report(job: Job) -> Run:
        run = judge(job)
        load = 0.05 if run.id in seen else 1.5
        seen.add(run.id)
        return replace(run, machine=replace(run.machine, load=load))

    monkeypatch.setattr(Job, "_run_command", report)
    return others


def test_disturbed_runs_are_repeated_on_an_idle_machine(app: App, disturbed: Load) -> None:
    result = foretell.generate(app, wait_quiet_s=1)
    assert (result.completed, result.repeated, result.disturbed) == (3, 3, 0)
    assert {run.machine.load for run in foretell.list_runs(app).runs} == {0.05}


def test_disturbed_runs_are_not_repeated_on_a_busy_machine(app: App, disturbed: Load) -> None:
    disturbed.cores = 1.8
    result = foretell.generate(app, wait_quiet_s=0.1)
    assert (result.completed, result.repeated, result.disturbed) == (3, 0, 3)


def test_disturbed_runs_are_kept_if_repeating_is_interrupted(app: App, disturbed: Load) -> None:
    def leave(progress: Progress) -> None:
        if "once more" in progress.note:
            raise KeyboardInterrupt

    result = foretell.generate(app, wait_quiet_s=1, on_progress=leave)
    assert result.stopped
    assert foretell.list_runs(app, states=[State.COMPLETED]).total == 3


def test_ctrl_c_reports_stopped_local_runs(tmp_path: Path) -> None:
    app = load(tmp_path, "name: c\ncommand: [sleep, 60]\nrepetitions: 4\n")

    def leave(progress: Progress) -> None:
        if progress.running:
            raise KeyboardInterrupt

    result = foretell.generate(app, jobs=1, on_progress=leave)
    assert (result.submitted, result.held_back) == (0, 0)
    assert result.stopped.startswith("1 running run was stopped; run the same command again")


def test_runs_left_out_by_a_budget_are_reported(tmp_path: Path) -> None:
    app = load(tmp_path, "name: b\ncommand: [sleep, 0.1]\nrepetitions: 100\n")
    result = foretell.generate(app, budget_s=0.5, jobs=1)
    assert result.left == 100 - result.completed > 0
    assert result.left_s == pytest.approx(0.1 * result.left, rel=0.5)


class TestUnavailableStore:
    @pytest.fixture
    def away(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
        """Make the server unavailable while the test says so."""
        from foretell.stores.sql import SqlStore

        state, finish_all = {"away": 0}, SqlStore.finish_all

        def fail_first(store: SqlStore, runs: Collection[Run], owner: Owner) -> Any:
            if state["away"]:
                state["away"] -= 1
                raise StoreError("store pg: no server answers there.", transient=True)
            return finish_all(store, runs, owner)

        monkeypatch.setattr(SqlStore, "finish_all", fail_first)
        return state

    def test_a_campaign_waits_for_it(self, app: App, away: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "sleep", lambda _: None)
        away["away"] = 20
        notes = []
        result = foretell.generate(app, on_progress=lambda progress: notes.append(progress.note))
        assert result.completed == 3
        assert sum("no server answers" in note for note in notes) == 1

    def test_ctrl_c_still_ends_it(self, app: App, away: dict[str, int]) -> None:
        def leave(progress: Progress) -> None:
            if "no server answers" in progress.note:
                raise KeyboardInterrupt

        away["away"] = 10**6
        result = foretell.generate(app, on_progress=leave)
        assert result.stopped
        away["away"] = 0
        again = foretell.generate(app)
        assert result.completed + again.recovered + again.completed == 3
        assert foretell.list_runs(app, states=[State.COMPLETED]).total == 3


@pytest.mark.postgres
def test_a_campaign_survives_a_restart_of_the_server(tmp_path: Path, restartable_postgres: Any) -> None:
    app = load(tmp_path, "name: r\ncommand: [sleep, 0.2]\nrepetitions: 12\n")
    code = (
        "import sys, foretell; app = foretell.load_app(sys.argv[1]); "
        "result = foretell.generate(app, store=sys.argv[2], wait=True); print(result.completed, *result.notes)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "foretell.yaml"), restartable_postgres.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        wait_for(lambda: bool(list(tmp_path.glob(".foretell/runs/r/*/run.json"))))
        restartable_postgres.stop("fast")
        time.sleep(2)
        restartable_postgres.start()
        out = process.communicate()[0]
    assert out.startswith("12 ")
    assert "Retrying until it responds" in out
    assert foretell.list_runs(app, store=restartable_postgres.url, states=[State.COMPLETED]).total == 12
