import pytest

from foretell.distributed.render_layouts import break_layout


@pytest.mark.parametrize(
    ("layout", "lines"),
    [
        ("zero1", "zero1"),
        ("dp=8,zero1,tp=2,sp", "dp=8,zero1,tp=2,sp"),
        ("dp=8,zero1,pp=2,interleave=2", ("dp=8,zero1,pp=2,", "interleave=2")),
        ("dp=16,fsdp,tp=8,sp,cp=2,pp=16,interleave=2", ("dp=16,fsdp,tp=8,sp,", "cp=2,pp=16,", "interleave=2")),
    ],
)
def test_long_layouts_are_broken_between_their_words(layout: str, lines: str | tuple[str, ...]) -> None:
    assert break_layout(layout) == lines
    assert layout == "".join(lines)
    assert all(len(line) <= 20 for line in lines)
