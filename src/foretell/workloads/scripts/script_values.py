"""Values of simple expressions in a running script, read without running any of the user's own code."""

import ast
import inspect
import linecache
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import FrameType, ModuleType
from typing import Any

from foretell.workloads.scripts.script_events import is_own_code

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_CALLS: dict[str, Callable[[Any], Any]] = {"int": int, "len": len, "ceil": math.ceil, "floor": math.floor}


@lru_cache(maxsize=64)
def parse_file(filename: str) -> ast.Module | None:
    """The code of a file; None if it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


def read_values(frame: FrameType) -> dict[str, Any]:
    """What the names of a frame mean."""
    return {**frame.f_globals, **frame.f_locals}


def evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """The value of an expression; None if it cannot be read, or only by running code of the user's."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.Attribute):
        return read_attribute(evaluate(node.value, values), node.attr)
    if isinstance(node, ast.Subscript):
        return _read_item(evaluate(node.value, values), evaluate(node.slice, values))
    if isinstance(node, ast.BinOp):
        return _compute(node, values)
    if isinstance(node, ast.Call):
        return _call(node, values)
    return None


def evaluate_count(node: ast.expr, values: Mapping[str, Any]) -> int | None:
    """The value of an expression that is a whole number."""
    found = evaluate(node, values)
    if isinstance(found, float) and found.is_integer():
        return int(found)
    return found if type(found) is int else None


def read_attribute(owner: Any, name: str) -> Any:
    """An attribute: of a library's object as it is, of the user's own without running a property."""
    if owner is None:
        return None
    try:
        if isinstance(owner, ModuleType) or not _is_own(type(owner)):
            return getattr(owner, name, None)
        found = inspect.getattr_static(owner, name, None)
        return None if isinstance(found, property) else found
    except Exception:  # a property of a library that is not ready
        return None


def count_items(sized: Any) -> int | None:
    """The length of something."""
    try:
        return len(sized)
    except Exception:  # no length, or one that the user's own code computes and fails at
        return None


def _is_own(kind: type) -> bool:
    try:
        return is_own_code(inspect.getfile(kind))
    except (TypeError, OSError):  # of Python itself, or of the script that runs
        return kind.__module__ == "__main__"


def _read_item(owner: Any, key: Any) -> Any:
    if type(owner) is dict and isinstance(key, (str, int)):
        return owner.get(key)
    if (
        isinstance(owner, (list, tuple))
        and not _is_own(type(owner))
        and type(key) is int
        and -len(owner) <= key < len(owner)
    ):
        return owner[key]
    return None


def _compute(node: ast.BinOp, values: Mapping[str, Any]) -> Any:
    left, right = evaluate(node.left, values), evaluate(node.right, values)
    known = _OPERATORS.get(type(node.op))
    if known is None or not all(type(each) in (int, float) for each in (left, right)):
        return None
    try:
        return known(left, right)
    except (ArithmeticError, ValueError):
        return None


def _call(node: ast.Call, values: Mapping[str, Any]) -> Any:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in ("range", "trange"):
        return _build_range([evaluate_count(each, values) for each in node.args])
    if name == "size" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
        return _read_item(read_attribute(evaluate(node.func.value, values), "shape"), evaluate(node.args[0], values))
    if name not in _CALLS or len(node.args) != 1 or node.keywords:
        return None
    value = evaluate(node.args[0], values)
    if name == "len":
        return count_items(value) if value is not None else None
    if type(value) not in (int, float, str):
        return None
    try:
        return _CALLS[name](value)
    except (ArithmeticError, ValueError, TypeError):
        return None


def _build_range(limits: Sequence[int | None]) -> range | None:
    known = [each for each in limits if each is not None]
    try:
        return range(*known) if known and len(known) == len(limits) else None
    except (TypeError, ValueError):
        return None
