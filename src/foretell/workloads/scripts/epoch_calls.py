"""What an epoch of a script does besides its training steps: evaluations and checkpoints, read from its code."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.utils.data import DataLoader

from foretell.workloads.scripts.script_events import is_own_code
from foretell.workloads.scripts.script_loops import RunningLoop, unwrap
from foretell.workloads.scripts.script_values import count_items, evaluate, parse_file
from foretell.workloads.scripts.training_counts import TrainingCounts

_SAVES = frozenset({"save_state", "save_checkpoint", "save_pretrained", "save_model"})
_WITHOUT_GRADIENTS = frozenset({"no_grad", "inference_mode"})
_EVALUATION = ("eval", "valid", "test")
_DEPTH = 3  # of functions of the script's own that are read
_MAIN = ("rank", "main_process", "is_master", "master_process")
Body = list[ast.stmt]
Values = Mapping[str, Any]


@dataclass(slots=True)
class _Found:
    """What was found, each with how often an epoch; None once it cannot be said."""

    batches: float | None = 0.0
    saves: float | None = 0.0

    def add_batches(self, count: int | None, rate: float | None) -> None:
        known = self.batches is not None and count is not None and rate is not None
        self.batches = self.batches + count * rate if known else None  # type: ignore[operator]

    def add_save(self, rate: float | None) -> None:
        self.saves = self.saves + rate if self.saves is not None and rate is not None else None


def count_calls(epoch: RunningLoop, batches: int | None) -> TrainingCounts:
    """Evaluations and checkpoints in the loop over the epochs; None where the code does not show them."""
    reader = _Reader(epoch.line, batches)
    reader.read(epoch.node.body, epoch.values, rate=1.0, judged=False, depth=0)
    return TrainingCounts(evaluation_batches=reader.found.batches, saves_per_epoch=reader.found.saves)


class _Reader:
    def __init__(self, line: int, batches: int | None) -> None:
        self.found = _Found()
        self._line = line  # of the step, in the frame with the loop
        self._batches = batches

    def read(self, body: Body, values: Values, *, rate: float | None, judged: bool, depth: int) -> None:
        """Read statements that run ``rate`` times an epoch; ``judged``: the model is being evaluated."""
        for node in body:
            if depth == 0 and node.lineno <= self._line <= (node.end_lineno or node.lineno):
                self._read_training(node, values)
                continue
            judged = self._read_one(node, values, rate=rate, judged=judged, depth=depth)

    def _read_one(self, node: ast.stmt, values: Values, *, rate: float | None, judged: bool, depth: int) -> bool:
        """Read a statement; whether the model is being evaluated after it."""
        if isinstance(node, ast.If):
            share = _find_share(node.test, values)
            for branch, part in ((node.body, share), (node.orelse, None if share != 1.0 else 0.0)):
                self.read(branch, values, rate=_multiply(rate, part), judged=judged, depth=depth)
            return judged
        if isinstance(node, ast.With):
            inside = judged or any(_is_without_gradients(each.context_expr) for each in node.items)
            self._read_calls(node, values, rate, depth, judged=inside, only_heads=True)
            self.read(node.body, values, rate=rate, judged=inside, depth=depth)
            return judged
        if isinstance(node, ast.For):
            self._read_loop(node, values, rate=rate, judged=judged, depth=depth)
            return judged
        if isinstance(node, ast.Try):
            self.read(node.body, values, rate=rate, judged=judged, depth=depth)
            return judged
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.While)):
            return judged
        return self._read_calls(node, values, rate, depth, judged=judged)

    def _read_loop(self, node: ast.For, values: Values, *, rate: float | None, judged: bool, depth: int) -> None:
        source = unwrap(node.iter, values)
        heads = [each.context_expr for one in ast.walk(node) if isinstance(one, ast.With) for each in one.items]
        if judged or any(map(_is_without_gradients, heads)):
            self.found.add_batches(count_items(source) if isinstance(source, DataLoader) else None, rate)
            return
        turns = count_items(source) if isinstance(source, (DataLoader, range, list, tuple)) else None
        self.read(node.body, values, rate=_multiply(rate, turns), judged=False, depth=depth)

    def _read_training(self, node: ast.stmt, values: Values) -> None:
        """The statement with the step: what else it does, it does not after each epoch."""
        calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        if any(_is_save(each, values) for each in calls):
            self.found.add_save(None)
        if _has_phases(node, values) or any(_hints_at_evaluation(_get_name(each)) for each in calls):
            self.found.add_batches(None, None)

    def _read_calls(
        self,
        node: ast.AST,
        values: Values,
        rate: float | None,
        depth: int,
        *,
        judged: bool,
        only_heads: bool = False,
    ) -> bool:
        roots: list[ast.AST] = [each.context_expr for each in getattr(node, "items", [])] if only_heads else [node]
        for root in roots:
            for each in ast.walk(root):
                if isinstance(each, ast.Call):
                    judged = self._read_call(each, values, rate, depth, judged=judged)
                elif isinstance(each, (ast.GeneratorExp, ast.ListComp)) and judged:
                    source = unwrap(each.generators[0].iter, values)
                    if isinstance(source, DataLoader):
                        self.found.add_batches(count_items(source), rate)
        return judged

    def _read_call(self, call: ast.Call, values: Values, rate: float | None, depth: int, *, judged: bool) -> bool:
        name = _get_name(call)
        if _is_save(call, values):
            self.found.add_save(rate)
        elif name == "eval" and isinstance(call.func, ast.Attribute):
            return True
        elif name == "train" and isinstance(call.func, ast.Attribute) and len(call.args) == 0:
            return False
        else:
            self._enter(call, name, values, rate, depth, judged=judged)
        return judged

    def _enter(
        self, call: ast.Call, name: str, values: Values, rate: float | None, depth: int, *, judged: bool
    ) -> None:
        """Read a function of the script's own that is called."""
        called = evaluate(call.func, values)
        function = _find_function(called)
        body = _find_body(function) if function is not None else None
        if function is None or body is None or depth >= _DEPTH:
            if _hints_at_evaluation(name) and not _is_of_library(called):
                self.found.add_batches(None, rate)
            return
        bound = {**function.__globals__, **_read_closure(function), **_bind(called, function, call, values)}
        judged = judged or any(_is_without_gradients(each) for each in body.decorator_list)
        self.read(body.body, bound, rate=rate, judged=judged, depth=depth + 1)


def _has_phases(node: ast.stmt, values: Values) -> bool:
    """Whether a loop over words is around the step, such as those of training and evaluation."""
    if not isinstance(node, ast.For):
        return False
    found = unwrap(node.iter, values)
    if found is None:
        found = [evaluate(each, values) for each in getattr(node.iter, "elts", [])]
    return type(found) in (list, tuple) and any(isinstance(each, str) for each in found)


def _get_name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _hints_at_evaluation(name: str) -> bool:
    return any(word in name.lower() for word in _EVALUATION)


def _multiply(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first * second


def _find_share(test: ast.expr, values: Values) -> float | None:
    """In which share of the epochs a condition holds: always on the main process, or every so many."""
    known = evaluate(test, values)
    if isinstance(known, bool):
        return float(known)
    words = " ".join(str(getattr(each, "attr", getattr(each, "id", ""))) for each in ast.walk(test)).lower()
    if any(word in words for word in _MAIN):
        return 1.0
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.BinOp) and isinstance(test.left.op, ast.Mod):
        every = evaluate(test.left.right, values)
        counted = "epoch" in ast.unparse(test.left.left).lower()
        if counted and type(every) is int and every > 0 and isinstance(test.ops[0], ast.Eq):
            return 1 / every
    return None


def _is_without_gradients(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return getattr(called, "attr", getattr(called, "id", "")) in _WITHOUT_GRADIENTS


def _is_save(call: ast.Call, values: Values) -> bool:
    name = _get_name(call)
    called = evaluate(call.func, values)
    if name == "save":
        return called is not None and called is torch.save
    return name in _SAVES and _find_function(called) is None


def _find_function(called: Any) -> FunctionType | None:
    """The script's own function, without what wraps it."""
    found = called.__func__ if isinstance(called, MethodType) else called
    found = inspect.unwrap(found) if isinstance(found, FunctionType) else None
    return found if isinstance(found, FunctionType) and is_own_code(found.__code__.co_filename) else None


def _is_of_library(called: Any) -> bool:
    return called is not None and _find_function(called) is None


def _find_body(function: FunctionType) -> ast.FunctionDef | None:
    tree = parse_file(function.__code__.co_filename)
    first = function.__code__.co_firstlineno
    found = [
        each
        for each in ast.walk(tree or ast.Module(body=[], type_ignores=[]))
        if isinstance(each, ast.FunctionDef) and each.name == function.__name__
    ]
    return next((each for each in found if first in (each.lineno, *(one.lineno for one in each.decorator_list))), None)


def _read_closure(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    found = {}
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found


def _bind(called: Any, function: FunctionType, call: ast.Call, values: Values) -> dict[str, Any]:
    """The values of the parameters, as far as they can be read."""
    owner = [called.__self__] if isinstance(called, MethodType) else []
    given = [*owner, *(evaluate(each, values) for each in call.args)]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    bound: dict[str, Any] = dict.fromkeys(function.__code__.co_varnames)
    bound.update(zip(names, given, strict=False))
    bound.update({each.arg: evaluate(each.value, values) for each in call.keywords if each.arg})
    return bound
