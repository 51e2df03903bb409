"""The loops around a line of a script that runs: what each counts, and over what it goes."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from foretell.workloads.scripts.script_values import (
    count_items,
    evaluate,
    evaluate_count,
    parse_file,
    read_attribute,
    read_values,
)

_WRAPPERS = 3  # as in enumerate(tqdm(loader)), at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A number that ends a loop."""

    name: str  # in small letters
    count: int  # turns from the first one on
    restarts: bool  # with each turn of the loop around it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLoop:
    """A loop with the line that runs."""

    node: ast.For | ast.While
    values: Mapping[str, Any]
    line: int  # that runs
    counters: tuple[Counter, ...]
    over_loader: bool  # that gave the batch of the step
    items: int | None = None  # of the list that it goes over

    @property
    def is_conditional(self) -> bool:
        """Whether the line runs in some of the turns only."""
        inside = [each for each in ast.walk(self.node) if isinstance(each, ast.If) and _contains(each, self.line)]
        return bool(inside)


def find_loops(frame: FrameType, loader: Any) -> list[RunningLoop]:
    """The loops of a frame that run, the innermost first."""
    tree = parse_file(frame.f_code.co_filename)
    if tree is None:
        return []
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    running = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.While)) and node.lineno >= first and _contains(node, line)
    ]
    ordered = sorted(running, key=lambda node: -node.lineno)
    values = read_values(frame)
    own = frozenset(frame.f_code.co_varnames)
    return [
        _describe(node, ordered[place + 1 :], values, line=line, own=own, loader=loader)
        for place, node in enumerate(ordered)
    ]


def _contains(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _describe(
    node: ast.For | ast.While,
    outer: list[ast.For | ast.While],
    values: Mapping[str, Any],
    *,
    line: int,
    own: frozenset[str],
    loader: Any,
) -> RunningLoop:
    source = unwrap(node.iter, values) if isinstance(node, ast.For) else None
    made_here = isinstance(node, ast.For) and _is_made_here(node.iter)
    return RunningLoop(
        node=node,
        values=values,
        line=line,
        counters=tuple(_find_counters(node, source, outer, values, line=line, own=own)),
        over_loader=loader is not None and (_is_loader(source, loader) or made_here),
        items=count_items(source) if type(source) in (list, tuple) else None,
    )


def unwrap(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """What a loop goes over, without ``enumerate`` or a progress bar around it."""
    for _ in range(_WRAPPERS):
        found = evaluate(node, values)
        if found is not None:
            return found.iterable if type(found).__module__.startswith("tqdm") else found
        if not isinstance(node, ast.Call) or not node.args:
            return None
        node = node.args[0]
    return None


def _is_loader(source: Any, loader: Any) -> bool:
    """Whether it is the loader, or what Accelerate wraps around it."""
    return source is loader or (source is not None and read_attribute(source, "base_dataloader") is loader)


def _is_made_here(node: ast.expr) -> bool:
    """Whether a loader is made in the head of its loop."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    return any("DataLoader" in (getattr(each.func, "id", ""), getattr(each.func, "attr", "")) for each in calls)


def _find_counters(
    node: ast.For | ast.While,
    source: Any,
    outer: list[ast.For | ast.While],
    values: Mapping[str, Any],
    *,
    line: int,
    own: frozenset[str],
) -> Iterator[Counter]:
    targets = _list_targets(node)
    if isinstance(source, range):
        yield Counter(name=" ".join(targets).lower(), count=len(source), restarts=True)
    for test, negated in _list_tests(node):
        limit = _read_limit(test, values, negated=negated)
        if limit is None:
            continue
        name, end = limit
        start = 0 if name in targets else _find_start(name, node, values, line)
        if start is not None and end > start:
            restarts = name in targets or (_is_set_in(name, outer) if outer else name in own)
            yield Counter(name=name.lower(), count=end - start, restarts=restarts)


def _list_targets(node: ast.For | ast.While) -> list[str]:
    """The names that count the turns: of ``for step, batch in enumerate(…)``, the first one."""
    if isinstance(node, ast.While):
        return []
    if isinstance(node.target, ast.Name):
        return [node.target.id]
    counts = isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "enumerate"
    names = [each.id for each in getattr(node.target, "elts", []) if isinstance(each, ast.Name)]
    return names[:1] if counts else []


def _list_tests(node: ast.For | ast.While) -> Iterator[tuple[ast.expr, bool]]:
    """What must be true for the loop to continue, and (negated) what ends it."""
    if isinstance(node, ast.While):
        yield node.test, False
    for each in _walk_turn(node.body):
        if isinstance(each, ast.If) and any(isinstance(one, (ast.Break, ast.Return)) for one in each.body):
            yield each.test, True


def _walk_turn(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What belongs to a turn: not functions that are defined in it, nor breaks of inner loops."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While)):
            continue
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from _walk_turn(getattr(node, name, []))


def _read_limit(test: ast.expr, values: Mapping[str, Any], *, negated: bool) -> tuple[str, int] | None:
    """The name that is compared, and the first value with which the loop ends."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right, kind = test.left, test.comparators[0], type(test.ops[0])
    if not isinstance(left, ast.Name):
        turned = {ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.LtE: ast.GtE}
        left, right, kind = right, left, turned.get(kind, kind)
    more = {ast.GtE: 0, ast.Gt: 1, ast.Eq: 0} if negated else {ast.Lt: 0, ast.LtE: 1, ast.NotEq: 0}
    end = evaluate_count(right, values)
    if not isinstance(left, ast.Name) or kind not in more or end is None:
        return None
    return left.id, end + more[kind]


def _find_start(name: str, node: ast.For | ast.While, values: Mapping[str, Any], line: int) -> int | None:
    """The value of a counter before the first turn, which runs now; None if it does not count by ones."""
    steps = [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name) and each.target.id == name
    ]
    ones = [each for each in steps if isinstance(each.op, ast.Add) and getattr(each.value, "value", None) == 1]
    value = values.get(name)
    if len(steps) != 1 or len(ones) != 1 or type(value) is not int:
        return None
    return value - (steps[0].lineno < line)


def _is_set_in(name: str, outer: list[ast.For | ast.While]) -> bool:
    """Whether the loop around sets a counter anew."""
    return any(
        isinstance(each, ast.Assign) and any(getattr(target, "id", "") == name for target in each.targets)
        for each in ast.walk(outer[0])
    )
