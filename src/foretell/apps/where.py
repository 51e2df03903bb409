"""Parses and evaluates conditions such as ``hidden % heads == 0 and gpus > 0``, without running them as code."""

import ast
import enum
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretell.apps._nodes import find_near, render_value
from foretell.core.app import App, Parameter, ParameterType, Value
from foretell.core.errors import Mistake, SpecError
from foretell.core.formula import ExpressionError, is_number, parse_expression
from foretell.core.run import Allocation, RunSpec

if TYPE_CHECKING:
    from foretell.apps._nodes import Entry  # with PyYAML, which predictions do not need

Evaluate = Callable[[Mapping[str, Any]], Any]

A_CONDITION = "a condition on parameters, cores, gpus and nodes, such as hidden % heads == 0"
_EXAMPLE = "hidden % heads == 0"
_SINGLE_EQUALS = re.compile(r"(?<![=!<>])=(?!=)")
_DEEPEST = 100


class Kind(enum.StrEnum):
    """The kind of a part of a condition."""

    NUMBER = "a number"
    TEXT = "text"
    TRUTH = "true or false"


def _power(left: float, right: float) -> Any:
    return float(left) ** right  # of integers it could take all memory


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITY: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_MEMBERSHIP: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Condition:
    """Names, numbers, quoted text, ``+ - * / // % **``, comparisons, ``in``, ``and or not``, ``true false``, ``()``.

    Raises (on :meth:`parse`):
        ExpressionError: if the text has anything else, a name that is not in ``kinds``, or an invalid comparison.
    """

    text: str
    names: frozenset[str]
    _evaluate: Evaluate = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, kinds: Mapping[str, Kind]) -> "Condition":
        body = _parse(text)
        part = _Reader(text.strip(), kinds).read(body)
        if part.kind is not Kind.TRUTH:
            raise ExpressionError(f"{text!r}, which is {part.kind}", A_CONDITION)
        names = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)} - _TRUTHS.keys()
        return cls(text, frozenset(names), part.evaluate)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is true for these values; parts without a value (``1 / 0``) compare as false."""
        return bool(self._evaluate(values))


def _parse(text: str) -> ast.expr:
    try:
        return parse_expression(text, what="condition", example=_EXAMPLE)
    except ExpressionError as exc:
        compared = _SINGLE_EQUALS.sub("==", text)
        if compared == text or not _is_expression(compared):
            raise
        expected = f"{exc.expected} (equal is written ==); did you mean {compared!r}?"
        raise ExpressionError(exc.found, expected) from None


def _is_expression(text: str) -> bool:
    try:
        parse_expression(text, what="condition", example=_EXAMPLE)
    except ExpressionError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Part:
    kind: Kind
    evaluate: Evaluate


@dataclass(frozen=True, slots=True)
class _Reader:
    """Compiles the parts of an expression to functions, and checks their kinds."""

    text: str
    kinds: Mapping[str, Kind]

    def read(self, node: ast.expr, depth: int = 0) -> _Part:
        if depth > _DEEPEST:
            raise ExpressionError(f"a condition nested more than {_DEEPEST} levels deep", "a shorter one")
        for kind, read in _READERS.items():
            if isinstance(node, kind):
                return read(self, node, depth + 1)
        raise self._refuse(node)

    def _read_name(self, node: ast.Name, depth: int) -> _Part:
        name = node.id
        if name in self.kinds:
            return _Part(self.kinds[name], lambda values: values[name])
        if name in _TRUTHS:
            return _constant(Kind.TRUTH, _TRUTHS[name])
        expected = f"one of {', '.join(self.kinds)} (text is written in quotes)"
        raise ExpressionError(f"{name!r} in {self.text!r}, which names nothing", expected, unknown=name)

    def _read_constant(self, node: ast.Constant, depth: int) -> _Part:
        if isinstance(node.value, bool):
            return _constant(Kind.TRUTH, node.value)
        if isinstance(node.value, str):
            return _constant(Kind.TEXT, node.value)
        if is_number(node):
            return _constant(Kind.NUMBER, node.value)
        raise self._refuse(node)

    def _read_arithmetic(self, node: ast.BinOp, depth: int) -> _Part:
        if type(node.op) not in _ARITHMETIC:
            raise self._refuse(node)
        compute = _ARITHMETIC[type(node.op)]
        left, right = self._expect(node.left, Kind.NUMBER, depth), self._expect(node.right, Kind.NUMBER, depth)
        return _Part(Kind.NUMBER, lambda values: _compute(compute, left(values), right(values)))

    def _read_sign_or_not(self, node: ast.UnaryOp, depth: int) -> _Part:
        if isinstance(node.op, ast.Not):
            inner = self._expect(node.operand, Kind.TRUTH, depth)
            return _Part(Kind.TRUTH, lambda values: not inner(values))
        if isinstance(node.op, ast.USub | ast.UAdd):
            number = self._expect(node.operand, Kind.NUMBER, depth)
            sign = -1 if isinstance(node.op, ast.USub) else 1
            return _Part(Kind.NUMBER, lambda values: sign * number(values))
        raise self._refuse(node)

    def _read_logic(self, node: ast.BoolOp, depth: int) -> _Part:
        parts = [self._expect(value, Kind.TRUTH, depth) for value in node.values]
        combine = all if isinstance(node.op, ast.And) else any
        return _Part(Kind.TRUTH, lambda values: combine(part(values) for part in parts))

    def _read_comparison(self, node: ast.Compare, depth: int) -> _Part:
        operands = [node.left, *node.comparators]
        links = [
            self._read_link(sign, left, right, depth)
            for sign, left, right in zip(node.ops, operands, operands[1:], strict=False)
        ]
        return _Part(Kind.TRUTH, lambda values: all(link(values) for link in links))

    def _read_link(self, sign: ast.cmpop, left: ast.expr, right: ast.expr, depth: int) -> Evaluate:
        if type(sign) in _MEMBERSHIP:
            return self._read_membership(_MEMBERSHIP[type(sign)], left, right, depth)
        if type(sign) in _ORDER:
            first, second = (self._expect(node, Kind.NUMBER, depth) for node in (left, right))
            order = _ORDER[type(sign)]
            return lambda values: order(first(values), second(values))
        if type(sign) in _EQUALITY:
            same, one = _EQUALITY[type(sign)], self.read(left, depth)
            other = self._expect(right, one.kind, depth)
            return lambda values: same(one.evaluate(values), other(values))
        raise ExpressionError(repr(self.text), "a comparison by ==, !=, <, <=, >, >=, in or not in")

    def _read_membership(
        self, compare: Callable[[Any, Any], bool], left: ast.expr, right: ast.expr, depth: int
    ) -> Evaluate:
        if not isinstance(right, ast.List | ast.Tuple | ast.Set):
            raise ExpressionError(repr(self.text), "a list after 'in', such as ['flash', 'naive'] or [1, 2]")
        one = self.read(left, depth)
        listed = [self._expect(item, one.kind, depth) for item in right.elts]
        return lambda values: compare(one.evaluate(values), [item(values) for item in listed])

    def _expect(self, node: ast.expr, kind: Kind, depth: int) -> Evaluate:
        part = self.read(node, depth)
        if part.kind is not kind:
            raise ExpressionError(f"{self._show(node)}, which is {part.kind}", kind)
        return part.evaluate

    def _show(self, node: ast.expr) -> str:
        part = ast.get_source_segment(self.text, node) or self.text
        return repr(part) if part == self.text else f"{part!r} in {self.text!r}"

    def _refuse(self, node: ast.expr) -> ExpressionError:
        expected = "names, numbers, quoted text, + - * / // % **, comparisons, in, and, or, not and ()"
        return ExpressionError(self._show(node), expected)


_READERS: Mapping[type[ast.expr], Callable[[_Reader, Any, int], _Part]] = {
    ast.Name: _Reader._read_name,
    ast.Constant: _Reader._read_constant,
    ast.BinOp: _Reader._read_arithmetic,
    ast.UnaryOp: _Reader._read_sign_or_not,
    ast.BoolOp: _Reader._read_logic,
    ast.Compare: _Reader._read_comparison,
}


def _constant(kind: Kind, value: Any) -> _Part:
    return _Part(kind, lambda _: value)


def _compute(compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    try:
        value = compute(left, right)
    except ArithmeticError:
        return math.nan
    return math.nan if isinstance(value, complex) else value


def list_broken(conditions: Sequence[Condition], values: Mapping[str, Any]) -> list[str]:
    """Return the conditions that are false for these values; those with an unknown name are skipped."""
    return [one.text for one in conditions if one.names <= values.keys() and not one.holds(values)]


_MEMORY = "memory_mb"
_RESOURCES = ("cores", "gpus", "nodes", _MEMORY)
_KINDS = {
    ParameterType.INTEGER: Kind.NUMBER,
    ParameterType.NUMBER: Kind.NUMBER,
    ParameterType.TEXT: Kind.TEXT,
    ParameterType.BOOLEAN: Kind.TRUTH,
}
_MOST_SHOWN = 10


def read_where(entry: "Entry | None", parameters: Sequence[Parameter], *, has_memory: bool) -> tuple[str, ...]:
    """Return the conditions, one or several; each invalid one is reported with its line."""
    if entry is None:
        return ()
    items = entry.read_items(expected="at least one condition") if entry.is_list else [entry]
    kinds = _list_kinds(parameters)
    if not has_memory:
        del kinds[_MEMORY]  # it would never be evaluated
    conditions = [_read_condition(item, kinds) for item in items]
    return tuple(condition.text for condition in conditions if condition is not None)


def _read_condition(entry: "Entry", kinds: Mapping[str, Kind]) -> Condition | None:
    text = entry.read_text(expected=A_CONDITION)
    if text is None:
        return None
    try:
        return Condition.parse(text, kinds)
    except ExpressionError as exc:
        near = None if exc.unknown is None else find_near(exc.unknown, kinds)
        entry.note(exc.expected if near is None else f"{exc.expected}; did you mean {near!r}?", found=exc.found)
        return None


def _list_kinds(parameters: Sequence[Parameter]) -> dict[str, Kind]:
    named = {parameter.name: _KINDS[parameter.type] for parameter in parameters}
    return named | dict.fromkeys(_RESOURCES, Kind.NUMBER)


@dataclass(frozen=True)
class Where:
    """The conditions of an app, parsed.

    Raises:
        SpecError: if the app does not come from a file and has an invalid condition.
    """

    app: App
    _conditions: tuple[Condition, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = _list_kinds(self.app.parameters)
        try:
            conditions = tuple(Condition.parse(text, kinds) for text in self.app.where)
        except ExpressionError as exc:
            mistake = Mistake(place="where", found=exc.found, expected=f"{exc.expected}; correct it in the app file")
            raise SpecError(self.app.name, [mistake]) from None
        object.__setattr__(self, "_conditions", conditions)

    def find_broken(self, parameters: Mapping[str, Value], allocation: Allocation) -> str | None:
        """Return the first condition that excludes it; one on memory is skipped if none is requested."""
        if not self._conditions:
            return None
        return next(iter(list_broken(self._conditions, {**parameters, **_list_resources(allocation)})), None)

    def allows(self, spec: RunSpec) -> bool:
        return self._find_broken_in(spec) is None

    def check(self, specs: Sequence[RunSpec]) -> None:
        """Refuse configurations that the app excludes.

        Raises:
            SpecError: with the first of them.
        """
        self._refuse([(_render_spec(spec), self._find_broken_in(spec)) for spec in specs])

    def check_rows(self, specs: Sequence[RunSpec]) -> None:
        """Refuse rows of a table that the app excludes; they are named by their numbers.

        Raises:
            SpecError: with the first of them.
        """
        named = ((f"{_render_spec(spec)} in row {row}", spec) for row, spec in enumerate(specs, start=1))
        self._refuse([(found, self._find_broken_in(spec)) for found, spec in named])

    def check_parameters(self, spec: RunSpec) -> None:
        """Refuse configurations by the conditions on parameters alone, if the allocation is not chosen yet.

        Raises:
            SpecError: if one of them excludes it.
        """
        broken = list_broken(self._conditions, spec.parameters)
        self._refuse([(_render_spec(spec), condition) for condition in broken])

    def _find_broken_in(self, spec: RunSpec) -> str | None:
        return self.find_broken(spec.parameters, spec.allocation)

    def _refuse(self, judged: Sequence[tuple[str, str | None]]) -> None:
        mistakes = [
            Mistake(place="where", found=found, expected=f"{broken}, as the app file says")
            for found, broken in judged
            if broken is not None
        ]
        if mistakes:
            raise SpecError(f"configuration of {self.app.name}", mistakes[:_MOST_SHOWN])


def _list_resources(allocation: Allocation) -> dict[str, Any]:
    resources = {"cores": allocation.cores, "gpus": allocation.gpus, "nodes": allocation.nodes}
    if allocation.memory_bytes is not None:
        resources[_MEMORY] = allocation.memory_bytes // 2**20
    return resources


def _render_spec(spec: RunSpec) -> str:
    values = {**spec.parameters, **_list_resources(spec.allocation)}
    return " ".join(f"{name}={render_value(value)!s}" for name, value in values.items())
