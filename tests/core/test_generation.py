"""The times of generated text from those of some of its steps."""

import pytest

from foretell.core.generation import Generation
from foretell.core.workload import Workload


def build(prompt: int, new: int, lengths: tuple[int, ...]) -> Generation:
    step = Workload(name="x", operators=())
    return Generation(
        name="x", batch=3, prompt=prompt, new=new, prefill=step, decodes=(step,) * len(lengths), lengths=lengths
    )


@pytest.mark.parametrize(("new", "lengths"), [(2, (10,)), (3, (10, 11)), (40, (10, 29, 48)), (129, (10, 74, 138))])
def test_steps_that_grow_linearly_with_the_text_are_summed_exactly(new: int, lengths: tuple[int, ...]) -> None:
    text = build(10, new, lengths)
    times = text.combine(0.5, [0.01 + 0.001 * length for length in lengths])
    expected = sum(0.01 + 0.001 * length for length in range(10, 10 + new - 1))
    assert sum(text.weights) == pytest.approx(new - 1)
    assert times.total_s == pytest.approx(0.5 + expected)
    assert times.token_s == pytest.approx(expected / (new - 1))
    assert times.tokens_per_s == pytest.approx(3 * new / times.total_s)


def test_one_token_comes_from_the_prompt() -> None:
    times = build(10, 1, ()).combine(0.5, [])
    assert (times.first_token_s, times.token_s, times.total_s) == (0.5, 0.0, 0.5)
