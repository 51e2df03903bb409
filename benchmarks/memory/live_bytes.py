"""Measures the bytes of the tensors that exist while PyTorch runs."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The peak of the bytes of all storages that exist, on real tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._storages: dict[int, Any] = {}

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note tensors that exist already."""
        for tensor in tensors:
            self._note(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, and note the storages of what it takes and gives."""
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves((args, kwargs, out)):
            if isinstance(each, torch.Tensor):
                self._note(each)
        self.peak = max(self.peak, self.measure())
        return out

    def measure(self) -> int:
        """The bytes that exist now."""
        live = (reference() for reference in self._storages.values())
        return sum(storage.nbytes() for storage in live if storage is not None)

    def _note(self, tensor: torch.Tensor) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        storage = local.untyped_storage()
        if storage._cdata not in self._storages:
            key = storage._cdata
            self._storages[key] = weakref.ref(storage, lambda _ref: self._storages.pop(key, None))
