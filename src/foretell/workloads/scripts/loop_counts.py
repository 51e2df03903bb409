"""How long a script trains, as far as its loops and its trainer show it while the first step runs."""

import ast
import linecache
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from foretell.workloads.scripts.script_events import is_own_code

_TRAINERS = {  # attributes of the object that trains, with the path to its counts of epochs and of steps
    "transformers.trainer": ("args.num_train_epochs", "args.max_steps"),
    "lightning": ("trainer.max_epochs", "trainer.max_steps"),
}
_EPOCHS, _STEPS = ("epoch",), ("step", "iter")


def find_epochs(frame: FrameType | None) -> tuple[int | None, int | None]:
    """Epochs and steps of the training; None for what is not shown."""
    epochs: int | None = None
    steps: int | None = None
    while frame is not None:
        if is_own_code(frame.f_code.co_filename):
            for name, count in _find_loops(frame):
                if epochs is None and any(word in name for word in _EPOCHS):
                    epochs = count
                elif steps is None and any(word in name for word in _STEPS):
                    steps = count
        else:
            known = _ask_trainer(frame)
            epochs, steps = epochs or known[0], steps or known[1]
        frame = frame.f_back
    return epochs, steps


def _find_loops(frame: FrameType) -> Iterator[tuple[str, int]]:
    """The name and the number of turns of each loop over a range that runs in a frame, the innermost first."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return
    line = frame.f_lineno
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.lineno <= line <= (node.end_lineno or node.lineno)
        and node.lineno >= frame.f_code.co_firstlineno
    ]  # fmt: skip
    for loop in sorted(loops, key=lambda node: -node.lineno):
        count = _count_turns(loop.iter, {**frame.f_globals, **frame.f_locals})
        if count is not None and isinstance(loop.target, ast.Name):
            yield loop.target.id.lower(), count


def _count_turns(node: ast.expr, values: Mapping[str, Any]) -> int | None:
    """The length of a range whose limits are numbers, names or attributes."""
    if not isinstance(node, ast.Call) or not node.args or node.keywords:
        return None
    if not (isinstance(node.func, ast.Name) and node.func.id == "range"):
        return _count_turns(node.args[0], values)  # as in tqdm(range(10))
    limits = [_evaluate(each, values) for each in node.args]
    if not all(type(each) is int for each in limits):
        return None
    try:
        return len(range(*limits))
    except (TypeError, ValueError, OverflowError):
        return None


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """The value of a simple expression: nothing of the user's runs but its attributes."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _evaluate(node.value, values)
        found = getattr(owner, "__dict__", {})
        return found.get(node.attr) if isinstance(found, dict) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, right = _evaluate(node.left, values), _evaluate(node.right, values)
        if type(left) is int and type(right) is int:
            return left + right if isinstance(node.op, ast.Add) else left - right
    return None


def _ask_trainer(frame: FrameType) -> tuple[int | None, int | None]:
    module = str(frame.f_globals.get("__name__", ""))
    for name, paths in _TRAINERS.items():
        if module.startswith(name) and "self" in frame.f_locals:
            return _read_count(frame.f_locals["self"], paths[0]), _read_count(frame.f_locals["self"], paths[1])
    return None, None


def _read_count(owner: Any, path: str) -> int | None:
    for name in path.split("."):
        try:
            owner = getattr(owner, name, None)
        except Exception:  # a property that is not ready yet
            return None
    if isinstance(owner, float) and owner.is_integer():
        owner = int(owner)
    return owner if isinstance(owner, int) and owner > 0 else None
