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
        "precision", "loss", "optimizer", "implementation", "accumulation",
    ]  # fmt: skip
    assert "one of sgd, adam, adamw" in str(error.value)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("float32", "fp32"), ("single", "fp32"), ("TF32", "tf32"), ("half", "fp16"), ("amp", "fp16"),
        ("bfloat16", "bf16"), ("torch.bfloat16", "bf16"), ("float8", "fp8"), ("pure_bf16", "pure-bf16"),
    ],
)  # fmt: skip
def test_precision_has_usual_names(word: str, name: str) -> None:
    options = StepOptions(precision=word)
    assert options == StepOptions(precision=name)
    assert options.settings["precision"] == name


@pytest.mark.parametrize(("word", "near"), [("bf61", "'bf16'"), ("flaot32", "'float32'"), ("forech", "'foreach'")])
def test_a_near_miss_is_suggested(word: str, near: str) -> None:
    name = "implementation" if word == "forech" else "precision"
    with pytest.raises(SpecError, match=f"did you mean {near}"):
        StepOptions(**{name: word})  # type: ignore[arg-type]


def test_what_has_no_meaning_without_training_is_refused() -> None:
    with pytest.raises(SpecError) as error:
        StepOptions(mode="inference", accumulation=2, checkpointing=True, prompt=8)
    assert [mistake.place for mistake in error.value.mistakes] == ["prompt", "accumulation", "checkpointing"]
    with pytest.raises(SpecError, match="mode 'generate'"):
        StepOptions(new=8)
    assert "optimizer" not in StepOptions(mode="inference").settings
