"""Waste of jobs with known usage."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from foretell.core.errors import SpecError
from foretell.core.site import Billing, NodeType, Site
from foretell.history.waste import COLUMNS, find_waste

GB = 2.0**30
SITE = Site(
    name="here",
    title="Here",
    scheduler="slurm",
    node_types=(
        NodeType(
            name="n",
            partition="cpu",
            cores=8,
            memory_bytes=int(32 * GB),
            billing=Billing.CORE_HOURS,
            price_per_core_h=Decimal("0.5"),
            memory_per_core_bytes=int(4 * GB),
        ),
    ),
)


def build(count: int = 40, **changes: Any) -> Any:
    """Jobs of an hour with 8 cores and 16 GB that kept 2 cores busy and used 4 GB."""
    usual = {
        "elapsed_s": 3600.0, "limit_s": 36000.0, "nodes": 1.0, "cores": 8.0, "gpus": 0.0, "memory_bytes": 16 * GB,
        "cpu_s": 7200.0, "peak_memory_bytes": 4 * GB, "state": "completed", "user": "ada", "account": "a",
        "app": "x", "partition": "cpu",
    }  # fmt: skip
    columns = {
        name: np.full(count, value, dtype=object if isinstance(value, str) else float) for name, value in usual.items()
    }
    for name, value in changes.items():
        columns[name] = (
            np.array(value, dtype=columns[name].dtype) if isinstance(value, list) else columns[name] * 0 + value
        )
    assert set(columns) == set(COLUMNS)
    return columns


def test_waste_of_equal_jobs() -> None:
    total = find_waste(build(), by="user").total
    assert (total.jobs, total.completed, total.core_hours, total.paid) == (40, 40, 320, 320)
    assert (total.one_request, total.at_best, total.lost) == (80, 80, 0)
    assert (total.time_ratio, total.cpu_used, total.memory_used) == (10, 0.25, 0.25)


def test_prices_include_the_cores_that_own_the_memory() -> None:
    report = find_waste(build(), by="user", site=SITE)
    assert report.currency == "USD"
    assert report.total.paid == pytest.approx(40 * 8 * 0.5)
    assert report.total.at_best == pytest.approx(40 * 2 * 0.5)  # 4.4 GB are owned by 2 cores
    frugal = find_waste(build(memory_bytes=32 * GB, peak_memory_bytes=20 * GB), by="user", site=SITE)
    assert frugal.total.at_best == pytest.approx(40 * 6 * 0.5)  # 22 GB are owned by 6


def test_one_request_pays_for_retries_and_for_taking_longer() -> None:
    peaks = [4 * GB] * 38 + [16 * GB] * 2
    report = find_waste(build(peak_memory_bytes=peaks), by="user", site=SITE)
    assert report.total.one_request == pytest.approx((38 * 2 + 2 * (2 + 4)) * 0.5)  # a second try with 16 GB
    slow = find_waste(build(cpu_s=[7200.0] * 38 + [28800.0] * 2), by="user")
    assert slow.total.one_request == pytest.approx(38 * 2 + 2 * 2 * 4)


def test_bounds_are_in_order_and_never_above_what_was_paid() -> None:
    random = np.random.default_rng(5)
    columns = build(
        400,
        elapsed_s=random.integers(0, 9000, 400).astype(float).tolist(),
        cores=random.integers(1, 9, 400).astype(float).tolist(),
        cpu_s=random.uniform(0, 60000, 400).tolist(),
        peak_memory_bytes=np.where(random.random(400) < 0.2, np.nan, random.uniform(0, 40, 400) * GB).tolist(),
        state=random.choice(["completed", "failed", "out_of_memory", "timed_out"], 400).tolist(),
        app=random.choice(["x", "y"], 400).tolist(),
    )
    for site in (None, SITE):
        report = find_waste(columns, by="app", site=site)
        assert [row.name for row in sorted(report.rows, key=lambda row: row.name)] == ["x", "y"]
        for row in (*report.rows, report.total):
            assert 0 <= row.at_best <= row.paid + 1e-9
            assert row.one_request <= row.paid + 1e-9
            assert row.lost < row.paid
        assert sum(row.paid for row in report.rows) == pytest.approx(report.total.paid)


def test_unknown_usage_is_not_waste() -> None:
    unknown = find_waste(build(cpu_s=np.nan, peak_memory_bytes=np.nan, limit_s=np.nan, memory_bytes=np.nan), by="user")
    total = unknown.total
    assert (total.time_ratio, total.cpu_used, total.memory_used) == (None, None, None)
    assert total.paid == total.one_request == total.at_best == 320
    assert unknown.unmeasured_memory == 40


def test_few_jobs_give_no_single_request() -> None:
    total = find_waste(build(19), by="user").total
    assert total.one_request == total.paid > total.at_best


def test_jobs_without_a_price_are_counted_separately() -> None:
    report = find_waste(build(partition=["cpu"] * 30 + ["gpu"] * 10), by="partition", site=SITE)
    assert report.unpriced == {"gpu": 10}
    assert [(row.name, row.paid) for row in report.rows] == [("cpu", 120.0), ("gpu", 0.0)]


def test_an_unknown_group() -> None:
    with pytest.raises(SpecError, match="one of user, account, app, partition"):
        find_waste(build(), by="colour")
