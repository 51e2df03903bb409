"""Phrases that several reports share."""

from dataclasses import replace

import pytest

from foretell.core.model_card import Judgement
from foretell.core.prediction import Estimate
from foretell.core.render.phrases import ELAPSED, MEMORY, describe_expectation, render_range


def test_the_error_between_measured_values_is_reported_where_it_is_known(judgement: Judgement) -> None:
    unknown = replace(judgement, between=None)
    known = replace(judgement, between=replace(judgement.expected, median_ape=4.2, mape=90_000.0))
    assert "between" not in describe_expectation(unknown)
    assert describe_expectation(known).endswith("half the time by less than 4.2 %")


@pytest.mark.parametrize(
    ("quantity", "low", "high", "text"),
    [
        (ELAPSED, 43 * 60, 61 * 60, "43-61 min"),
        (ELAPSED, 0.5 * 3600, 2.7 * 3600, "0.5-2.7 h"),
        (ELAPSED, 36, 2.7 * 3600, "36 s-2.7 h"),
        (ELAPSED, 0.4, 1035 * 86400, "400 ms-1035 d"),
        (ELAPSED, 0, 2.7 * 3600, "0.0-2.7 h"),
        (MEMORY, 3 * 2**20, 2 * 2**30, "3.0 MB-2.0 GB"),
    ],
)
def test_a_range_keeps_its_lower_bound(quantity: str, low: float, high: float, text: str) -> None:
    assert render_range(quantity, Estimate(value=high, low=low, high=high, level=0.9)) == text
