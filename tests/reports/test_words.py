"""Phrases that several reports share."""

from dataclasses import replace

from foretell.entities.learned import Judgement
from foretell.reports.words import describe_expectation


def test_the_error_between_measured_values_is_told_where_it_is_known(judgement: Judgement) -> None:
    unknown = replace(judgement, between=None)
    known = replace(judgement, between=replace(judgement.expected, median_ape=4.2, mape=90_000.0))
    assert "between" not in describe_expectation(unknown)
    assert describe_expectation(known).endswith("half the time by less than 4.2 %")
