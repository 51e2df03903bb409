"""Whose results a tensor holds: numbers of records, kept on the tensor itself, so that they go when it goes."""

from collections.abc import Collection, Iterable
from typing import Any

import torch

_NOTE = "_foretell_sources"
NOTHING: frozenset[int] = frozenset()


class Flow:
    """Notes on tensors of one step. What a model keeps from another step says nothing here."""

    def __init__(self) -> None:
        self._step = object()

    def find(self, values: Iterable[Any]) -> frozenset[int]:
        """Numbers of the records whose results these values hold."""
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
        """Note whose result these values are."""
        if isinstance(value, torch.Tensor):
            setattr(value, _NOTE, (self._step, frozenset(numbers)))
        elif isinstance(value, (list, tuple)):
            for each in value:
                self.mark(each, numbers)
        elif isinstance(value, dict):
            self.mark(tuple(value.values()), numbers)

    def mark_changed(self, value: Any, numbers: Collection[int]) -> None:
        """Note who changed a tensor in place: what it is a view of has changed with it."""
        self.mark(value, numbers)
        if isinstance(value, torch.Tensor) and value._is_view() and value._base is not None:
            self.mark(value._base, self.find((value._base,)) | frozenset(numbers))
