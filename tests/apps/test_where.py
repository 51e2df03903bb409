"""Configurations that an app file excludes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.apps.app_file import MOST_RUNS
from foretell.apps.sweep import build_sweep, count_runs
from foretell.apps.where import Where
from foretell.core.app import App, Domain, Parameter, ParameterType, Value
from foretell.core.errors import Mistake, SpecError
from foretell.core.run import Allocation, RunSpec

Read: TypeAlias = Callable[[str], App]
Find: TypeAlias = Callable[[str], tuple[Mistake, ...]]

_ATTENTION = """
name: attention
command: [run, "{heads}", "{hidden}", "{algorithm}"]
parameters:
  heads: {sd: [2, 3], fs: [4, 12]}
  hidden: {sd: [8, 12], fs: [64]}
  algorithm: {values: [flash, naive]}
resources: {cores: [1, 2], gpus: [0, 1]}
"""
_WHERE = """where: ["hidden % heads == 0", "algorithm != 'flash' or gpus > 0"]"""


def test_excluded_configurations_are_not_run(read: Read) -> None:
    whole, some = (build_sweep(read(_ATTENTION + where)) for where in ("", _WHERE))
    allowed = [
        spec
        for spec in whole
        if spec.parameters["hidden"] % spec.parameters["heads"] == 0
        and (spec.parameters["algorithm"] != "flash" or spec.allocation.gpus > 0)
    ]
    assert list(some) == allowed
    assert 0 < len(some) < len(whole)
    assert count_runs(read(_ATTENTION + _WHERE)) == len(whole)


def test_one_condition_needs_no_list(read: Read) -> None:
    assert read(_ATTENTION + "where: hidden % heads == 0").where == ("hidden % heads == 0",)


@pytest.mark.parametrize(
    ("where", "found", "expected"),
    [
        (
            '["heads <= hiden"]',
            "'hiden' in 'heads <= hiden', which names nothing",
            "one of heads, hidden, algorithm, cores, gpus, nodes (text is written in quotes); did you mean 'hidden'?",
        ),
        ('["heads < 100", "algorithm > 3"]', "'algorithm' in 'algorithm > 3', which is text", "a number"),
        (
            '["hidden = 3"]',
            "'hidden = 3'",
            "a condition, such as hidden % heads == 0 (equal is written ==); did you mean 'hidden == 3'?",
        ),
        ('["hidden =< 3"]', "'hidden =< 3'", "a condition, such as hidden % heads == 0"),
        ("{heads: 3}", "a mapping", "a condition"),
        ("[]", "an empty list", "at least one condition"),
        ('["heads > 100"]', "exclude every run", "some of the values"),
        ('["memory_mb > 100"]', "'memory_mb' in 'memory_mb > 100', which names nothing", "one of heads"),
    ],
)
def test_mistakes_have_their_line(find_mistakes: Find, where: str, found: str, expected: str) -> None:
    (mistake,) = find_mistakes(f"{_ATTENTION}where: {where}")
    assert mistake.line == 9
    assert mistake.place.startswith("where")
    assert found in mistake.found
    assert expected in mistake.expected
    assert "; expected " not in f"{mistake.found} {mistake.expected}"


def test_conditions_on_memory_apply_if_it_is_requested(read: Read) -> None:
    app = read(_ATTENTION.replace("cores: [1, 2]", "memory: [1GB, 4GB]") + "where: memory_mb >= 2048")
    assert {spec.allocation.memory_bytes for spec in build_sweep(app)} == {2**32}
    assert Where(app).find_broken({"heads": 2}, Allocation()) is None


def test_excluded_configurations_are_refused_with_the_condition(read: Read) -> None:
    where = Where(read(_ATTENTION + _WHERE))
    fine: dict[str, Value] = {"heads": 4, "hidden": 64, "algorithm": "naive"}
    where.check([RunSpec(app="attention", parameters=fine)])
    with pytest.raises(SpecError, match="hidden % heads == 0") as caught:
        where.check([RunSpec(app="attention", parameters=fine | {"heads": 3})])
    assert "heads=3" in str(caught.value)
    on_cpus = RunSpec(app="attention", parameters=fine | {"algorithm": "flash"})
    where.check_parameters(on_cpus)
    with pytest.raises(SpecError, match="gpus > 0"):
        where.check([on_cpus])


def test_rows_of_a_table_are_named(read: Read) -> None:
    where = Where(read(_ATTENTION + _WHERE))
    rows = [{"heads": heads, "hidden": 64, "algorithm": "naive"} for heads in (4, 3, 2, 5)]
    with pytest.raises(SpecError) as caught:
        where.check_rows([RunSpec(app="attention", parameters=row) for row in rows])
    assert [mistake.found.partition(" in ")[2] for mistake in caught.value.mistakes] == ["row 2", "row 4"]


def test_an_invalid_condition_from_a_store_is_a_clear_error(read: Read) -> None:
    with pytest.raises(SpecError, match="where"):
        Where(replace(read(_ATTENTION), where=("__import__('os')",)))


def _build_app(scaled_down: Sequence[Sequence[int]], full_scale: Sequence[Sequence[int]], repetitions: int) -> App:
    parameters = tuple(
        Parameter(
            name=f"p{number}",
            type=ParameterType.INTEGER,
            scaled_down=Domain(values=tuple(few)),
            full_scale=Domain(values=tuple(many)),
        )
        for number, (few, many) in enumerate(zip(scaled_down, full_scale, strict=True))
    )
    return App(name="a", command=("run",), parameters=parameters, repetitions=repetitions)


_axes = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True), min_size=2, max_size=2)


@given(scaled_down=_axes, full_scale=_axes, repetitions=st.integers(1, 2))
def test_runs_are_counted_as_they_are_made(
    scaled_down: list[list[int]], full_scale: list[list[int]], repetitions: int
) -> None:
    app = _build_app(scaled_down, full_scale, repetitions)
    sweep = build_sweep(app)
    assert count_runs(app) == len(sweep) == len({spec.id for spec in sweep})


def test_a_million_configurations_are_a_million(read: Read, find_mistakes: Find) -> None:
    text = (
        "name: a\nshell: 'true'\nparameters:\n  a: {{values: {{from: 1, to: 1000, step: 1}}}}\n"
        "  b: {{values: {{from: 1, to: {most}, step: 1}}}}\n"
    )
    assert count_runs(read(text.format(most=1000))) == MOST_RUNS
    (mistake,) = find_mistakes(text.format(most=1001))
    assert "1,001,000 runs" in mistake.found
