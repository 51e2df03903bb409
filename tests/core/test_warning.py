"""Warnings have a code that is documented, and those of earlier versions are still read."""

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import foretell
from foretell.core.model_card import ModelCard
from foretell.core.observation import Load
from foretell.core.run import Bench
from foretell.core.serialization import from_record, read_warnings, to_record
from foretell.core.warning import WARNING_CODES, ExperimentalWarning, PredictionWarning, build_warning, experimental

_ROOT = Path(__file__).parents[2]
WARNING = build_warning("outside-measured-range", "n = 9 lies outside the runs", name="n", value=9.0, low=1, high=4)


def _list_used_codes() -> set[str]:
    trees = (ast.parse(path.read_text("utf-8")) for path in (_ROOT / "src").rglob("*.py"))
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    named = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "build_warning")
    return {ast.literal_eval(call.args[0]) for call in named}


def test_every_code_is_used_and_every_used_code_is_listed() -> None:
    assert _list_used_codes() | {"unclassified"} == set(WARNING_CODES)


def test_every_code_is_documented_with_its_meaning() -> None:
    text = (_ROOT / "docs/python.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", text, re.M)) == dict(WARNING_CODES)


@pytest.mark.parametrize("code", WARNING_CODES)
def test_codes_are_words_joined_by_hyphens(code: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)


def test_a_warning_is_the_same_after_its_record() -> None:
    assert read_warnings({"warnings": to_record((WARNING,))}) == (WARNING,)


def test_equal_warnings_are_one_in_a_set() -> None:
    again = build_warning(WARNING.code, WARNING.text, **WARNING.data)
    assert {WARNING, again} == {WARNING}


def test_a_model_card_of_an_earlier_version_is_read() -> None:
    record = {"app": "a", "policy": "mape", "judgements": {}, "uses_custom": False, "notes": ["column 'x' is not used"]}
    (warning,) = from_record(ModelCard, record).warnings
    assert warning == PredictionWarning(code="unclassified", text="column 'x' is not used")


def test_a_bench_of_an_earlier_version_is_read() -> None:
    bench = Bench(
        bench_version=1,
        bench_s=1.0,
        bench_core_s=1.0,
        bench_cores_s=1.0,
        bench_memory_s=1.0,
        bench_disk_s=None,
        spread={},
        repeats=5,
        busy_cores=0.0,
        warnings=(),
        hostname="here",
        cpu_model="a CPU",
        cores=2,
        software="",
        measured_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    record = to_record(bench)
    earlier = {**{name: value for name, value in record.items() if name != "warnings"}, "doubts": []}
    assert from_record(Bench, earlier) == bench


def test_what_is_no_warning_is_refused() -> None:
    with pytest.raises(TypeError):
        read_warnings({"warnings": [3]})
    assert from_record(Load, {"notes": ["of no field"]}) == Load()


def test_an_experimental_function_warns_and_works() -> None:
    @experimental
    def add(one: int, *, other: int) -> int:
        """The sum."""
        return one + other

    with pytest.warns(ExperimentalWarning, match=r"foretell\.add may still change") as caught:
        assert add(1, other=2) == 3
    assert caught[0].filename == __file__
    assert add.__doc__ == "The sum."


@pytest.mark.parametrize(
    "name", ["explore_consumption", "learn_consumption", "observe", "predict_consumption", "predict_placements"]
)
def test_what_the_docs_call_experimental_is(name: str) -> None:
    text = (_ROOT / "docs/python.md").read_text("utf-8")
    assert f"`{name}`" in text.partition("are experimental")[0].rpartition("\n\n")[2]
    with pytest.warns(ExperimentalWarning), pytest.raises(TypeError):
        getattr(foretell, name)(unknown_argument=1)
