"""Notes attached to tensors: which records made them."""

from collections.abc import Collection, Iterable
from typing import Any

import torch

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


_CREATING = frozenset({
    "zeros", "ones", "full", "arange", "linspace", "eye", "tensor", "scalar_tensor", "zeros_like", "ones_like",
    "full_like", "new_zeros", "new_ones", "new_full", "new_tensor",
    "empty", "empty_like", "new_empty", "rand", "randn", "rand_like", "randn_like", "randint", "randperm",
})  # fmt: skip


def creates(kind: str) -> bool:
    """Whether a call makes a tensor that has no more than its form from others."""
    return kind in _CREATING
