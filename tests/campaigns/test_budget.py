"""Budgets are kept, and small ones are used well. No test waits: a fake clock gives runs their durations."""

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
    """A clock that only the test advances."""

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
    """Minutes that the run of each ``n`` takes; ``n`` by default."""
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
    """Return the runs in the order in which they were made."""
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


def test_a_sweep_without_scaled_down_runs_starts_with_the_smallest(tmp_path: Path) -> None:
    app = load(tmp_path, "{values: [9, 4, 16]}")
    assert generate(app, minutes=10).completed == 1
    assert list_made(app) == [4]


def test_repetitions_of_measured_runs_need_no_estimate(tmp_path: Path) -> None:
    app = load(tmp_path, "{sd: [1, 2], fs: [30]}", "repetitions: 3\n")
    assert generate(app, minutes=10).completed == 6
    assert sorted(list_made(app)) == [1, 1, 1, 2, 2, 2]


def test_a_round_ends_when_its_runs_take_longer_than_planned(tmp_path: Path, minutes: dict[int, float]) -> None:
    app = load(tmp_path, "{sd: {from: 1, to: 20, step: 1}, fs: [100]}")
    minutes |= {number: number / 10 if number < 5 else 10.0 for number in range(1, 21)}
    result = generate(app, minutes=40)
    assert result.elapsed_s < (40 + 10) * MINUTE


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_budget_starts_with_the_first_run(
    app: App, clock: Clock, monkeypatch: pytest.MonkeyPatch, adaptive: bool
) -> None:
    monkeypatch.setattr(making, "preload", lambda: clock.sleep(10 * MINUTE))
    result = generate(app, minutes=7, adaptive=adaptive)
    assert result.completed == 3
    assert result.elapsed_s < 7 * MINUTE


def test_waiting_for_an_idle_machine_is_not_part_of_the_budget(
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
        """Other processes disturb every run the first time."""
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
            (7.5, 1, "1 run was measured while other processes used the machine; making it once more"),
            (10, 2, "2 runs were measured while other processes used the machine; making them once more"),
            (13, 3, "3 runs were measured while other processes used the machine; making them once more"),
        ],
    )
    def test_disturbed_runs_are_repeated_in_parallel(self, app: App, budget: float, repeated: int, note: str) -> None:
        notes: list[str] = []

        def watch(progress: Progress) -> None:
            notes.append(progress.note)

        result = generate(app, minutes=budget, wait_quiet_s=1.0, on_progress=watch)
        assert (result.completed, result.repeated, result.disturbed) == (3, repeated, 3 - repeated)
        assert [text for text in notes if "once more" in text] == [note] * bool(note)
        assert result.elapsed_s < budget * MINUTE


def test_an_adaptive_campaign_reports_that_nothing_fits(app: App) -> None:
    generate(app, minutes=7, adaptive=True)
    assert generate(app, minutes=7, adaptive=True).ending is Ending.BUDGET


def test_planned_runs_that_turn_out_too_long_are_reported(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "estimate_durations", lambda _, specs: [100 * MINUTE] * len(specs))
    result = generate(app, minutes=7, adaptive=True)
    assert (result.completed, result.ending) == (0, Ending.BUDGET)
