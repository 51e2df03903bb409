"""The shares of errors are found again in errors that were drawn from them, and one run is worth what they say."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.advice.test_evidence_steps import estimate

from foretell.advice.evidence_errors import ErrorShares, StepPlace, build_covariance, t_quantile

pytest.importorskip("pandas")
pytest.importorskip("scipy")
pytestmark = pytest.mark.slow

LAW = ErrorShares(network=0.6, device=0.2, freedom=4.0, batch_doublings=2.0, device_freedom=4.0)
PLACES = [StepPlace(device=device, batch=batch) for device in ("A", "B", "C") for batch in (8, 64)]


def draw(applications: int, scale: float) -> list[Any]:
    """Labels as the benchmarks have them, of networks whose errors have one width each."""
    random = np.random.default_rng(1)
    covariance = build_covariance(PLACES, np.full(len(PLACES), scale), [True] * len(PLACES), LAW)
    spread = covariance.build(1.0, np.ones(len(PLACES)))
    found = []
    for number in range(applications):
        width = LAW.freedom / random.chisquare(LAW.freedom)
        errors = random.multivariate_normal(np.zeros(len(PLACES)), width * spread, method="cholesky")
        found += [
            _build(f"network {number}", place, float(error), scale) for place, error in zip(PLACES, errors, strict=True)
        ]
    return found


def _build(name: str, place: StepPlace, error: float, scale: float) -> Any:
    label = SimpleNamespace(batch=place.batch, seconds=float(np.exp(error)), mode="training")
    return SimpleNamespace(
        protocol="drawn",
        application=name,
        device=place.device,
        family=name,
        estimate=estimate(1.0, scale * t_quantile(0.95, LAW.freedom)),
        step=SimpleNamespace(error=error, seen=True, case=SimpleNamespace(label=label)),
    )


def test_shares_are_found_again() -> None:
    from benchmarks.advise.shared_errors import fit_shares

    found = fit_shares(draw(80, 0.1))
    assert found.network == pytest.approx(LAW.network, abs=0.15)
    assert found.device == pytest.approx(LAW.device, abs=0.12)
    assert 2.5 < found.freedom < 8


def test_intervals_hold_after_one_run() -> None:
    from benchmarks.advise.one_run import judge_one_run

    rows = {row.run: row for row in judge_one_run(draw(60, 0.1), find_shares=lambda _: LAW) if row.protocol == "drawn"}
    assert set(rows) == {"a smaller batch", "another device"}
    for row in rows.values():
        assert 84 <= row.inside_after <= 96
        assert row.width_after < row.width_before
        assert row.mean_after < row.mean_before
    assert rows["a smaller batch"].mean_after < rows["another device"].mean_after
