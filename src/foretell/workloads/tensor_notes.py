"""Notes attached to meta tensors: which records made them, and the values of constants.

Constants are tensors that depend on no input and no parameter, such as masks and positions. Their values are computed
and attached to the meta tensor, so that the code of a model can read them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NOTE = "_foretell_sources"
NOTHING: frozenset[int] = frozenset()


class SourceNotes:
    """Which records made the tensors of one step. Notes of another step are ignored."""

    def __init__(self) -> None:
        self._step = object()

    def find(self, values: Iterable[Any]) -> frozenset[int]:
        """Numbers of the records that made these values."""
        found = NOTHING
        for value in values:
            if isinstance(value, torch.Tensor):
                step, numbers = getattr(value, _NOTE, (None, NOTHING))
                if step is self._step and not numbers <= found:
                    found |= numbers
            elif isinstance(value, (list, tuple)):
                found |= self.find(value)
            elif isinstance(value, dict):
                found |= self.find(value.values())
        return found

    def mark(self, value: Any, numbers: Collection[int]) -> None:
        """Note which records made these values."""
        if isinstance(value, torch.Tensor):
            setattr(value, _NOTE, (self._step, frozenset(numbers)))
        elif isinstance(value, (list, tuple)):
            for each in value:
                self.mark(each, numbers)
        elif isinstance(value, dict):
            self.mark(tuple(value.values()), numbers)

    def mark_changed(self, value: Any, numbers: Collection[int]) -> None:
        """Note which records changed a tensor in position; the base of a view has changed with it."""
        self.mark(value, numbers)
        if isinstance(value, torch.Tensor) and value._is_view() and value._base is not None:
            self.mark(value._base, self.find((value._base,)) | frozenset(numbers))


LIMIT = 2**26  # elements of a constant
LIMIT_IN_MODELS = 2**16  # of a constant that lives as long as the model
READING = frozenset({"item", "__bool__", "__int__", "__float__", "__index__", "tolist", "equal", "numpy"})
_CREATE_KNOWN = frozenset({
    "zeros", "ones", "full", "arange", "linspace", "eye", "tensor", "scalar_tensor", "zeros_like", "ones_like",
    "full_like", "new_zeros", "new_ones", "new_full", "new_tensor",
})  # fmt: skip
_CREATE_UNKNOWN = frozenset({
    "empty", "empty_like", "new_empty", "rand", "randn", "rand_like", "randn_like", "randint", "randperm",
})  # fmt: skip
_VALUE = "_foretell_value"


def is_constant(kind: str, given: Iterable[torch.Tensor]) -> bool:
    """Whether a call creates a tensor, or computes with constants only."""
    if kind in _CREATE_KNOWN or kind in _CREATE_UNKNOWN:
        return True
    marks = [hasattr(each, _VALUE) for each in given]
    return bool(marks) and all(marks)


def find_value(tensor: Any) -> torch.Tensor | None:
    """The value of a constant."""
    return getattr(tensor, _VALUE, None)


def keep_constant(
    func: Callable[..., Any],
    kind: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    out: Any,
    *,
    limit: int = LIMIT,
) -> None:
    """Mark the results of a call as constants, with their values if these are known."""
    results = _flatten(out if out is not None else args[:1])
    if any(each.requires_grad for each in results):
        return
    values: Sequence[torch.Tensor | None] = ()
    if kind not in _CREATE_UNKNOWN and all(each.numel() <= limit for each in results):
        values = _compute(func, kind, args, kwargs)
    for position, result in enumerate(results):
        setattr(result, _VALUE, values[position] if len(values) == len(results) else None)


def _compute(
    func: Callable[..., Any], kind: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Sequence[torch.Tensor | None]:
    creates = kind in _CREATE_KNOWN
    if not creates and any(find_value(each) is None for each in _flatten((args, kwargs))):
        return ()
    given = args if creates else [_replace_by_value(each) for each in args]
    named = {name: _replace_by_value(each) for name, each in kwargs.items()} | ({"device": "cpu"} if creates else {})
    try:
        out = func(*given, **named)
    except (RuntimeError, TypeError, NotImplementedError):
        return ()
    return _flatten(out if out is not None else given[:1])


def _replace_by_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return find_value(value)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(_replace_by_value(each) for each in value)
    return value


class KnownValues(TorchFunctionMode):
    """Lets code that builds a model on meta tensors read the values of constants."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Read known values, and keep the values of new constants."""
        kwargs = kwargs or {}
        kind = getattr(func, "__name__", "")
        if kind in READING and (value := find_value(args[0])) is not None:
            return func(value, *args[1:], **kwargs)
        out = func(*args, **kwargs)
        if is_constant(kind, _flatten((args, kwargs))):
            keep_constant(func, kind, args, kwargs, out, limit=LIMIT_IN_MODELS)
        return out


def _flatten(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return [each for part in value for each in _flatten(part)] if isinstance(value, (list, tuple)) else []
