"""Inputs and options given as text."""

import pytest

from foretell.core.errors import SpecError
from foretell.workloads.step_options import InputSpec, StepOptions, parse_input, resize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32,3,224,224", InputSpec(shape=(32, 3, 224, 224))),
        ("8,128:int64", InputSpec(shape=(8, 128), dtype="int64")),
        ("input_ids=8,128:int64:30522", InputSpec(name="input_ids", shape=(8, 128), dtype="int64", high=30522)),
        ("x=4", InputSpec(name="x", shape=(4,))),
    ],
)
def test_an_input_is_read_and_written(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1,-2", "1x2", "8:float31", "8,0", "=8", "8:int64:-1", "2x=8"])
def test_another_text_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(SpecError, match="expected") as error:
        parse_input(text)
    assert repr(text) in str(error.value)


def test_a_batch_is_the_first_dimension_of_each_input() -> None:
    inputs = [parse_input("32,3,8,8"), parse_input("y=32:int64:10")]
    assert [each.shape for each in resize(inputs, 4)] == [(4, 3, 8, 8), (4,)]
    assert resize(inputs, None) == tuple(inputs)


def test_all_mistakes_of_options_are_named_at_once() -> None:
    with pytest.raises(SpecError) as error:
        StepOptions(loss="hinge", optimizer="lion", implementation="slow", precision="int4", accumulation=0)
    assert [mistake.place for mistake in error.value.mistakes] == [
        "loss", "optimizer", "implementation", "precision", "accumulation",
    ]  # fmt: skip
    assert "one of sgd, adam, adamw" in str(error.value)
