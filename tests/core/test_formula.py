"""Users' arithmetic: read and computed, never run as code."""

import ast
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.formula import Formula

_numbers = st.floats(-1e3, 1e3).map(lambda number: f"({number!r})")
_formulas = st.recursive(
    st.one_of(_numbers, st.sampled_from(["startup", "epochs", "epoch"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join),
        inner.map(lambda text: f"(-{text})"),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=8,
)
_VALUES = {"startup": 2.0, "epochs": 10.0, "epoch": 0.5}


def test_the_example_of_the_docs() -> None:
    formula = Formula.parse("startup + epochs * epoch")
    assert formula.names == {"startup", "epochs", "epoch"}
    assert formula.evaluate(_VALUES) == 7.0


@given(text=_formulas)
def test_arithmetic_is_pythons(text: str) -> None:
    formula = Formula.parse(text)
    try:
        expected = eval(text, {}, _VALUES)
    except ZeroDivisionError:
        expected = math.nan
    assert formula.evaluate(_VALUES) == pytest.approx(expected, nan_ok=True)


@given(text=_formulas, size=st.integers(1, 5))
def test_arrays_are_computed_row_by_row(text: str, size: int) -> None:
    draw = np.random.default_rng(size)
    columns = {name: draw.uniform(1, 9, size) for name in _VALUES}
    with np.errstate(all="ignore"):
        whole = np.broadcast_to(Formula.parse(text).evaluate(columns), size)
        rows = [
            Formula.parse(text).evaluate({name: column[row] for name, column in columns.items()}) for row in range(size)
        ]
    np.testing.assert_allclose(whole, rows)


@pytest.mark.parametrize("text", ["1 / 0", "10 ** 400", "(0 - 8) ** 0.5", "0 ** (0 - 1)", "epoch + 1 / 0"])
def test_what_has_no_value_is_no_number(text: str) -> None:
    value = Formula.parse(text).evaluate(_VALUES)
    assert isinstance(value, float)
    assert math.isnan(value)


_CODE = [
    "__import__('os').system('touch /tmp/owned')", "().__class__", "epoch.real", "[1][0]", "lambda: 1", "f'{1}'",
    "(x := 1)", "[y for y in z]", "1 if epoch else 2", "epoch and 1", "1 < 2", "True", "None", "'text'", "1j", "...",
    "1 // 2", "1 % 2", "1 << 9", "~1", "not 1", "a @ b", "print(1)", "await x", "*a", "1, 2", "{}", "b'x'", "1e999",
]  # fmt: skip


@pytest.mark.parametrize("text", _CODE)
def test_anything_but_arithmetic_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        Formula.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n", "1 +", "((", "a b", "1\n2", "\0", "\udcff", "x" * 1001, "-" * 999 + "1",
     "not " * 240 + "1", "1" + "+1" * 400, "9" * 999, "1_", "0777", "1if", "'\\d'"],
)  # fmt: skip
def test_odd_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        Formula.parse(text)


@given(text=st.one_of(st.text(max_size=60), st.text(alphabet="epoch()+-*/.,[]'\"_:= 019\n", max_size=60)))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    try:
        formula = Formula.parse(text)
    except ValueError:
        return
    names = dict.fromkeys(formula.names, 3.0)
    assert isinstance(formula.evaluate(names), float)
    known = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.Load)
    assert all(isinstance(node, known) for node in ast.walk(ast.parse(text.strip(), mode="eval")))
