"""What makes two runs the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.app import Domain, Scale, Value
from foretell.core.run import Allocation, RunSpec, State

_values = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
_parameters = st.dictionaries(st.text(max_size=5), _values, max_size=4)


@given(parameters=_parameters)
def test_order_of_parameters_does_not_matter(parameters: dict[str, Value]) -> None:
    turned = dict(reversed(parameters.items()))
    assert RunSpec(app="a", parameters=turned).id == RunSpec(app="a", parameters=parameters).id


@given(one=_parameters, other=_parameters)
def test_other_parameters_make_another_configuration(one: dict[str, Value], other: dict[str, Value]) -> None:
    same = RunSpec(app="a", parameters=one).configuration == RunSpec(app="a", parameters=other).configuration
    assert same == (_typed(one) == _typed(other))


def _typed(parameters: dict[str, Value]) -> dict[str, str]:
    return {name: repr(value) for name, value in parameters.items()}


def test_repetitions_share_a_configuration_but_no_id() -> None:
    spec = RunSpec(app="a", parameters={"n": 1})
    again = replace(spec, repetition=1)
    assert again.configuration == spec.configuration
    assert again.id != spec.id


def test_sweep_and_walltime_are_no_part_of_a_configuration() -> None:
    spec = RunSpec(app="a", parameters={"n": 1})
    other = replace(spec, scale=Scale.SCALED_DOWN, allocation=Allocation(walltime_s=60.0))
    assert other.configuration == spec.configuration


@pytest.mark.parametrize(
    "allocation",
    [
        Allocation(cores=2),
        Allocation(gpus=1),
        Allocation(nodes=2),
        Allocation(memory_bytes=1),
        Allocation(partition="p"),
        Allocation(node_type="t"),
    ],
)
def test_resources_are_part_of_a_configuration(allocation: Allocation) -> None:
    spec = RunSpec(app="a", parameters={})
    assert replace(spec, allocation=allocation).configuration != spec.configuration


def test_only_queued_and_running_are_not_final() -> None:
    assert {state for state in State if not state.final} == {State.QUEUED, State.RUNNING}


@pytest.mark.parametrize(
    ("domain", "value", "allowed"),
    [
        (Domain(values=(1, 2)), 2, True),
        (Domain(values=(1, 2)), 3, False),
        (Domain(values=("a",)), "a", True),
        (Domain(low=0.0, high=1.0), 0.5, True),
        (Domain(low=0.0, high=1.0), 1.5, False),
        (Domain(low=0.0, high=1.0), "x", False),
        (Domain(low=0.0, high=1.0), float("nan"), False),
    ],
)
def test_domains_allow_what_they_list_or_span(domain: Domain, value: Value, allowed: bool) -> None:
    assert domain.allows(value) is allowed
