"""Two campaigns of one app on Slurm: runs of the other are not touched, but counted."""

from pathlib import Path

import pytest
from tests.fake_slurm.cluster import FakeSlurm
from tests.schedulers.slurm.campaigns import Sweep

import foretell
from foretell.campaigns import campaign as making
from foretell.campaigns.placement import BatchClaims
from foretell.campaigns.planning import plan_campaign
from foretell.core.run import Run
from foretell.schedulers.slurm import runner


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MIN_INTERVAL_S", 0.3)


def read_logs(sweep: Sweep) -> list[str]:
    return sorted(path.read_text() for path in sweep.folder.glob(".foretell/runs/*/*/stdout.log"))


@pytest.mark.parametrize("wait", [False, True])
def test_folders_of_runs_of_another_campaign_are_not_touched(
    fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: bool
) -> None:
    sweep = Sweep.build(tmp_path, shell='echo "$PARAM_n"')
    plan = plan_campaign

    def plan_and_be_late(*facts: object, **words: object) -> object:
        planned = plan(*facts, **words)  # type: ignore[arg-type]
        monkeypatch.setattr(making, "plan_campaign", plan)
        assert sweep.generate().completed == sweep.count
        return planned

    monkeypatch.setattr(making, "plan_campaign", plan_and_be_late)
    result = foretell.generate(sweep.app, wait=wait)
    assert read_logs(sweep) == ["0\n", "1\n", "2\n", "3\n"]
    assert (result.completed, result.failed) == (0, 0)
    assert (result.elsewhere_completed, result.elsewhere_failed) == (sweep.count, 0)
    sweep.check()
    sweep.check_submitted_once()


def test_runs_stored_by_another_campaign_are_counted(
    fake_slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.build(tmp_path, shell='test "$PARAM_n" != 1')
    sweep.hold()
    foretell.generate(sweep.app)
    keep = BatchClaims.keep

    def keep_too_late(claims: BatchClaims, runs: list[Run]) -> set[str]:
        monkeypatch.setattr(BatchClaims, "keep", keep)
        sweep.generate()
        return keep(claims, runs)

    monkeypatch.setattr(BatchClaims, "keep", keep_too_late)
    result = sweep.generate((sweep.has_started, sweep.release))
    assert (result.completed, result.failed) == (0, 0)
    assert (result.elsewhere_completed, result.elsewhere_failed) == (sweep.count - 1, 1)
