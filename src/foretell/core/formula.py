"""Arithmetic that users write, such as ``startup + epochs * epoch``: parsed, never executed as code."""

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_LONGEST = 1000
_DEEPEST = 100
_LARGEST = 1e300


class ExpressionError(ValueError):
    """Text that cannot be parsed as an expression: what was ``found``, and what was ``expected``.

    ``unknown`` is the unknown name in it, if that is the reason.
    """

    def __init__(self, found: str, expected: str, *, unknown: str | None = None) -> None:
        super().__init__(f"found {found}; expected {expected}")
        self.found = found
        self.expected = expected
        self.unknown = unknown


@dataclass(frozen=True)
class Formula:
    """Numbers, names, ``+ - * / **`` and parentheses.

    Raises (on :meth:`parse`, and wherever it is used):
        ExpressionError: if the text holds anything else.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> "Formula":
        formula = cls(text)
        assert formula._body  # it raises
        return formula

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(node.id for node in ast.walk(self._body) if isinstance(node, ast.Name))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The formula's value; numbers and NumPy arrays alike."""
        return self._evaluate(self._body, values)

    @cached_property
    def _body(self) -> ast.expr:
        body = parse_expression(self.text, what="formula", example="startup + epochs * epoch")
        self._check(body)
        return body

    def _check(self, node: ast.expr, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise ExpressionError(f"a formula nested more than {_DEEPEST} levels deep", "a shorter one")
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            self._check(node.left, depth + 1)
            self._check(node.right, depth + 1)
        elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            self._check(node.operand, depth + 1)
        elif not (isinstance(node, ast.Name) or is_number(node)):
            part = ast.get_source_segment(self.text.strip(), node)
            found = f"{part!r} in the formula {self.text!r}"
            raise ExpressionError(found, "numbers, names, + - * / ** and parentheses")

    def _evaluate(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.BinOp):
            return _combine(
                _BINARY[type(node.op)], self._evaluate(node.left, values), self._evaluate(node.right, values)
            )
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self._evaluate(node.operand, values))
        if isinstance(node, ast.Name):
            return _combine(operator.mul, values[node.id], 1.0)  # integers would grow without limit: n ** n ** n
        assert isinstance(node, ast.Constant)
        return float(node.value)  # type: ignore[arg-type]  # is_number has seen to it


def _combine(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """The operation's value; NaN where it is not a real number (``1 / 0``), as in arrays."""
    try:
        value = operation(left, right)
    except ArithmeticError:
        return math.nan
    return math.nan if isinstance(value, complex) else value


def parse_expression(text: str, *, what: str, example: str) -> ast.expr:
    """The text as an expression, not checked for what is in it.

    Raises:
        ExpressionError: if it is too long, or not an expression.
    """
    if len(text) > _LONGEST:
        raise ExpressionError(f"a {what} of {len(text)} characters", f"at most {_LONGEST}")
    try:
        with warnings.catch_warnings(action="ignore"):  # about text that is not Python
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(repr(text), f"a {what}, such as {example}") from None


def is_number(node: ast.expr) -> bool:
    """Whether it is a literal, finite number that is not too large."""
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
