"""Phases from lines and from JSON; reading never fails."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.core.app import Combine, Phase
from foretell.measure.phases import read_phases

EPOCH = r"epoch \d+: ([\d.]+) s"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Any]:
    def read(*phases: Phase, output: str | bytes = "", files: dict[str, str] | None = None) -> Any:
        path = tmp_path / "stdout.log"
        path.write_bytes(output if isinstance(output, bytes) else output.encode())
        for name, text in (files or {}).items():
            (tmp_path / name).write_text(text)
        return read_phases(phases, run_directory=tmp_path, output=path)

    return read


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        (Combine.MEAN, 2.0),
        (Combine.SUM, 6.0),
        (Combine.FIRST, 1.0),
        (Combine.LAST, 2.0),
        (Combine.MAX, 3.0),
        (Combine.COUNT, 3.0),
    ],
)
def test_matches_and_lists_are_combined(read: Callable[..., Any], combine: Any, expected: float) -> None:
    phases = (
        Phase(name="lines", pattern=EPOCH, combine=combine),
        Phase(name="list", file="t.json", key="train.epochs", combine=combine),
    )
    output = "epoch 1: 1.0 s\nloss 7\nepoch 2: 3.0 s\nepoch 3: 2.0 s\n"
    values, complaints = read(*phases, output=output, files={"t.json": '{"train": {"epochs": [1, 3, 2.0]}}'})
    assert values == {"lines": expected, "list": expected}
    assert complaints == ()


def test_whole_match_without_a_group(read: Callable[..., Any]) -> None:
    assert read(Phase(name="x", pattern=r"\d+"), output="took 12 s")[0] == {"x": 12.0}


def test_count_needs_no_number_and_may_be_zero(read: Callable[..., Any]) -> None:
    assert read(Phase(name="x", pattern="done", combine=Combine.COUNT), output="done done\ndone")[0] == {"x": 3.0}
    assert read(Phase(name="x", pattern="done", combine=Combine.COUNT), output="") == ({"x": 0.0}, ())


def test_progress_bars_are_lines_too(read: Callable[..., Any]) -> None:
    assert read(Phase(name="x", pattern=r"^(\d+)%"), output="10%\r20%\r30%")[0] == {"x": 20.0}


def test_output_without_line_breaks_is_read_in_pieces(read: Callable[..., Any]) -> None:
    assert read(Phase(name="x", pattern=r"y(\d)"), output="x" * 10_000_000 + "\ny5")[0] == {"x": 5.0}


def test_number_alone_in_the_file(read: Callable[..., Any]) -> None:
    assert read(Phase(name="x", file="n.json"), files={"n.json": "4.5"})[0] == {"x": 4.5}


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase(name="p", pattern="nothing like it"), ["no line of stdout.log", "nothing like it"]),
        (Phase(name="p", pattern="took (.*)"), ["'ages'", "not a finite number"]),
        (Phase(name="p", pattern="(x)?took"), ["None", "not a finite number"]),
        (Phase(name="p", pattern="("), ["not a regular expression"]),
        (Phase(name="p", file="missing.json", key="a"), ["missing.json", "No such file"]),
        (Phase(name="p", file="text.json", key="a"), ["text.json", "not JSON"]),
        (Phase(name="p", file="t.json", key="a.c"), ["no key 'c'", "'b'"]),
        (Phase(name="p", file="t.json", key="a.b.c"), ["no key 'c'", "none"]),
        (Phase(name="p", file="t.json", key="a"), ["t.json, a", "not a finite number"]),
        (Phase(name="p", file="t.json", key="flag"), ["True", "not a finite number"]),
        (Phase(name="p", file="t.json", key="nan"), ["nan", "not a finite number"]),
        (Phase(name="p", file="t.json", key="empty"), ["empty"]),
        (Phase(name="p", file="."), ["directory"]),
    ],
)
def test_complaints_quote_what_was_found(read: Callable[..., Any], phase: Any, words: list[str]) -> None:
    document = json.dumps({"a": {"b": 1}, "flag": True, "nan": math.nan, "empty": []})
    values, (complaint,) = read(phase, output="took ages", files={"t.json": document, "text.json": "{"})
    assert values == {}
    assert complaint.startswith("phase 'p': ")
    assert all(word in complaint for word in words), complaint


def test_missing_output(tmp_path: Path) -> None:
    phases = [Phase(name="p", pattern="x")]
    values, (complaint,) = read_phases(phases, run_directory=tmp_path, output=tmp_path / "stdout.log")
    assert values == {}
    assert "No such file" in complaint


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    output=st.binary(),
    document=JSON.map(json.dumps) | st.text(st.characters(exclude_categories=["Cs"])),
    pattern=st.sampled_from([EPOCH, ".*", "", r"(\S+)", "(a)|b", "(", r"-?\d+"]) | st.text(max_size=10),
    key=st.none() | st.sampled_from(["a", "a.b", "..", "", "a.0"]),
    combine=st.sampled_from(Combine),
)
def test_every_phase_has_a_finite_value_or_a_complaint(
    read: Callable[..., Any], output: Any, document: Any, pattern: Any, key: Any, combine: Any
) -> None:
    phases = (
        Phase(name="line", pattern=pattern, combine=combine),
        Phase(name="json", file="d.json", key=key, combine=combine),
    )
    values, complaints = read(*phases, output=output, files={"d.json": document})
    assert len(values) + len(complaints) == 2
    assert all(math.isfinite(value) for value in values.values())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_printed_numbers_are_read_unchanged(read: Callable[..., Any], numbers: Any) -> None:
    output = "".join(f"t={number!r}\n" for number in numbers)
    values, _ = read(Phase(name="sum", pattern="t=(.*)", combine=Combine.SUM), output=output)
    assert values["sum"] == pytest.approx(sum(numbers))
