"""GPUs on each node, as people write them."""

import pytest

from foretell.distributed.placed_steps import parse_placement, render_placement


@pytest.mark.parametrize(
    ("text", "gpus", "again"),
    [
        ("8", (8,), "8"),
        ("4+2", (4, 2), "4+2"),
        (" 2 + 4 ", (4, 2), "4+2"),
        ("2x8", (8, 8), "2x8"),
        ("8+8", (8, 8), "2x8"),
    ],
)
def test_placements_are_read_and_written(text: str, gpus: tuple[int, ...], again: str) -> None:
    assert parse_placement(text) == gpus
    assert render_placement(gpus) == again


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "4+0",
        "2x0",
        "0x8",
        "x8",
        "4+",
        "4,4",
        "-1",
        "2x8+4",
        "1.5",
        "eight",
        "99999999x8",
        "2x9999",
        f"1x1{0:0310}",
        f"1{0:0310}",
    ],
)
def test_what_is_none_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a placement; write for example 8, 4\+2 .* or 2x8.* at most"):
        parse_placement(text)
