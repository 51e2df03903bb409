"""Every value is the same after it was written as JSON and read again."""

import dataclasses
import inspect
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import ModuleType

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from foretell.campaigns import campaign_plan as plan
from foretell.core import app, prediction, run, site, warning
from foretell.core import model_card as learned
from foretell.core.app import App, Value
from foretell.core.model_card import ModelRecord
from foretell.core.prediction import Estimate
from foretell.core.run import ImportResult, Run, RunSpec, State
from foretell.core.serialization import from_record, to_record
from foretell.core.warning import PredictionWarning


def _list_kinds(module: ModuleType) -> list[type]:
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
    ]


_NOT_IN_JSON = {ModelRecord, ImportResult}  # one holds bytes, the other is shown and never read again
_KINDS = sorted(
    {kind for module in (app, learned, plan, prediction, run, site, warning) for kind in _list_kinds(module)}
    - _NOT_IN_JSON,
    key=lambda kind: kind.__name__,
)


@pytest.fixture(autouse=True, scope="module")
def _plain_values() -> None:
    """Strategies of numbers, texts and times: finite, and short enough to be quick."""
    st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
    st.register_type_strategy(Decimal, st.decimals(allow_nan=False, allow_infinity=False))
    st.register_type_strategy(str, st.text(max_size=5))
    st.register_type_strategy(datetime, st.datetimes(timezones=st.just(UTC)))
    plain = st.none() | st.booleans() | st.integers() | st.from_type(float) | st.from_type(str)
    held = st.dictionaries(st.from_type(str), plain | st.lists(plain, max_size=2), max_size=2)
    st.register_type_strategy(
        PredictionWarning, st.builds(PredictionWarning, code=st.from_type(str), text=st.from_type(str), data=held)
    )


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_values_come_back_equal(kind: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    record = json.loads(json.dumps(to_record(value)))
    assert from_record(kind, record) == value


def test_field_a_record_lacks_takes_its_default() -> None:
    assert from_record(App, {"name": "demo"}) == App(name="demo")


def test_field_the_class_lacks_is_ignored() -> None:
    assert from_record(App, {"name": "demo", "from_the_future": 1}) == App(name="demo")


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_comes_back_as_no_number(odd: float) -> None:
    record = to_record(Estimate(value=odd, low=0.0, high=1.0, level=0.9))
    assert record["value"] is None
    assert math.isnan(from_record(Estimate, record).value)


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", "", -0.5, 10**300])
def test_parameters_keep_their_type(value: Value) -> None:
    spec = RunSpec(app="demo", parameters={"n": value})
    back = from_record(RunSpec, json.loads(json.dumps(to_record(spec))))
    assert type(back.parameters["n"]) is type(value)
    assert back.id == spec.id


def test_times_keep_their_zone() -> None:
    started_at = datetime(2025, 3, 1, 12, tzinfo=UTC) + timedelta(microseconds=7)
    done = Run(spec=RunSpec(app="demo", parameters={}), state=State.COMPLETED, started_at=started_at)
    assert from_record(Run, to_record(done)).started_at == started_at
