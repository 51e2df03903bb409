"""Budgets: kept, and worth something when they are small. No test waits: runs take what the clock is told."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import foretell
from foretell.campaigns import campaign as making
from foretell.campaigns import waiting as quiet
from foretell.campaigns.campaign_plan import CampaignResult, Ending, Progress
from foretell.core.app import App
from foretell.core.run import Run, Usage
from foretell.schedulers.local import LocalRunner

MINUTE = 60.0


@dataclass
class Clock:
    """Time that passes when it is told to; what the test itself takes is nothing beside it."""

    skipped_s: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped_s

    def sleep(self, seconds: float) -> None:
        self.skipped_s += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(making, "time", clock)
    monkeypatch.setattr(quiet, "time", clock)
    monkeypatch.setattr(quiet, "current_load", lambda: 0.0)
    return clock


@pytest.fixture(autouse=True)
def minutes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """How many minutes the run of each ``n`` takes; ``n`` of them where nothing else is said."""
    poll, longer = LocalRunner.poll, dict[int, float]()

    def measure(runner: LocalRunner, timeout_s: float) -> list[Run]:
        runs = []
        for run in poll(runner, timeout_s):
            number = int(run.spec.parameters["n"])
            usage = Usage(elapsed_s=MINUTE * longer.get(number, number))
            clock.sleep(usage.elapsed_s)
            runs.append(replace(run, usage=usage))
        return runs

    monkeypatch.setattr(LocalRunner, "poll", measure)
    return longer


def load(folder: Path, parameters: str, more: str = "") -> App:
    (folder / "foretell.yaml").write_text(
        f"name: b\ncommand: ['true', '{{n}}']\nparameters: {{n: {parameters}}}\n{more}"
    )
    return foretell.load_app(folder / "foretell.yaml")


@pytest.fixture
def app(tmp_path: Path) -> App:
    return load(tmp_path, "{sd: [3, 1, 2], fs: [25, 20]}")


def generate(app: App, *, minutes: float, **words: object) -> CampaignResult:
    return foretell.generate(app, budget_s=MINUTE * minutes, jobs=1, **words)  # type: ignore[arg-type]


def list_made(app: App) -> list[int]:
    """What was run, in its order."""
    return [int(run.spec.parameters["n"]) for run in reversed(foretell.list_runs(app).runs)]


@pytest.mark.parametrize("adaptive", [False, True])
def test_full_scale_runs_are_made_only_if_they_should_fit(app: App, adaptive: bool) -> None:
    first = generate(app, minutes=7, adaptive=adaptive)
    assert sorted(list_made(app)) == [1, 2, 3]
    assert first.elapsed_s < 7 * MINUTE
    second = generate(app, minutes=7, adaptive=adaptive)
    assert (second.completed, second.left) == (0, 2)
    assert second.left_s == pytest.approx(45 * MINUTE, rel=0.2)
    assert generate(app, minutes=24, adaptive=adaptive).completed == 1
    assert list_made(app)[3:] == [20]


def test_the_first_runs_are_the_smallest_one_by_one(app: App, minutes: dict[int, float]) -> None:
    minutes[2] = 100.0
    result = generate(app, minutes=7)
    assert (list_made(app), result.left) == ([1, 2], 3)


def test_a_sweep_without_scaled_down_runs_begins_with_its_smallest(tmp_path: Path) -> None:
    app = load(tmp_path, "{values: [9, 4, 16]}")
    assert generate(app, minutes=10).completed == 1
    assert list_made(app) == [4]


def test_repetitions_of_what_was_measured_need_no_law(tmp_path: Path) -> None:
    app = load(tmp_path, "{sd: [1, 2], fs: [30]}", "repetitions: 3\n")
    assert generate(app, minutes=10).completed == 6
    assert sorted(list_made(app)) == [1, 1, 1, 2, 2, 2]


def test_a_round_ends_when_its_runs_take_longer_than_planned(tmp_path: Path, minutes: dict[int, float]) -> None:
    app = load(tmp_path, "{sd: {from: 1, to: 20, step: 1}, fs: [100]}")
    minutes |= {number: number / 10 if number < 5 else 10.0 for number in range(1, 21)}
    result = generate(app, minutes=40)
    assert result.elapsed_s < (40 + 10) * MINUTE


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_clock_starts_when_the_first_run_can(
    app: App, clock: Clock, monkeypatch: pytest.MonkeyPatch, adaptive: bool
) -> None:
    monkeypatch.setattr(making, "preload", lambda: clock.sleep(10 * MINUTE))
    result = generate(app, minutes=7, adaptive=adaptive)
    assert result.completed == 3
    assert result.elapsed_s < 7 * MINUTE


def test_waiting_for_a_quiet_machine_leaves_time_for_runs(
    app: App, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "current_load", lambda: 1.8)
    result = generate(app, minutes=8, wait_quiet_s=60 * MINUTE)
    assert list_made(app) == [1, 2]
    assert result.elapsed_s < 8 * MINUTE


class TestRepeats:
    @pytest.fixture
    def app(self, tmp_path: Path) -> App:
        return load(tmp_path, "{values: [1, 2, 3]}")

    @pytest.fixture(autouse=True)
    def disturbed(self, minutes: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
        """Every run is disturbed the first time."""
        poll, seen = LocalRunner.poll, set[str]()

        def measure(runner: LocalRunner, timeout_s: float) -> list[Run]:
            runs = poll(runner, timeout_s)
            loads = [0.0 if run.id in seen else 1.5 for run in runs]
            seen.update(run.id for run in runs)
            return [
                replace(run, machine=replace(run.machine, load=load)) for run, load in zip(runs, loads, strict=True)
            ]

        monkeypatch.setattr(LocalRunner, "poll", measure)

    @pytest.mark.parametrize(
        ("budget", "repeated", "note"),
        [
            (6.5, 0, ""),
            (7.5, 1, "1 run was measured while others used the machine: making it once more"),
            (10, 2, "2 runs were measured while others used the machine: making them once more"),
            (13, 3, "3 runs were measured while others used the machine: making them once more"),
        ],
    )
    def test_as_many_as_fit_together(self, app: App, budget: float, repeated: int, note: str) -> None:
        notes: list[str] = []

        def heed(progress: Progress) -> None:
            notes.append(progress.note)

        result = generate(app, minutes=budget, wait_quiet_s=1.0, on_progress=heed)
        assert (result.completed, result.repeated, result.disturbed) == (3, repeated, 3 - repeated)
        assert [text for text in notes if "once more" in text] == [note] * bool(note)
        assert result.elapsed_s < budget * MINUTE


def test_an_adaptive_campaign_says_that_nothing_fits(app: App) -> None:
    generate(app, minutes=7, adaptive=True)
    assert generate(app, minutes=7, adaptive=True).ending is Ending.BUDGET


def test_so_it_does_where_planned_runs_turn_out_too_long(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "estimate_durations", lambda _, specs: [100 * MINUTE] * len(specs))
    result = generate(app, minutes=7, adaptive=True)
    assert (result.completed, result.ending) == (0, Ending.BUDGET)
