"""Steps on more GPUs from Python: what is not checked by the command line."""

from typing import Any

import pandas as pd
import pytest

import foretell
from foretell.core.errors import SpecError

STEPS = pd.DataFrame({"batch": [64] * 4, "gpus": ["1", "4", "2x2", "2x4"], "step_s": [0.391, 0.407, 0.431, 0.446]})


def test_each_placement_is_predicted_once() -> None:
    predicted = foretell.predict_placements(STEPS, placements=[(4, 4), (4, 4), (4, 4, 4)])
    assert [each.count for each in predicted] == [8, 12]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"placements": ["2x4"]}, "'2x4'"),
        ({"placements": [(4.5,)]}, "whole numbers from 1"),
        ({"placements": [()]}, "whole numbers from 1"),
        ({"placements": [(4, 0)]}, "whole numbers from 1"),
        ({"level": 1.0}, "level: found 1.0"),
        ({"batch": float("nan")}, "batch: found nan"),
        ({"cluster": "away", "link_bytes_per_s": -1.0}, "link: found -1.0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        foretell.predict_placements(STEPS, **options)
