"""The types in which FSDP computes with parameters: each is cast before it is used, its gradient after that."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

_DTYPE = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


class ParameterTypes:
    """The lower precisions of parameters. A cast is kept until the end of its phase, as is a parameter of FSDP."""

    def __init__(self) -> None:
        self._types: dict[int, torch.dtype] = {}  # by the identity of the parameter
        self._cast: dict[tuple[int, bool], torch.Tensor] = {}  # with and without gradients

    def choose(self, parameters: Iterable[nn.Parameter], dtype: torch.dtype | None) -> None:
        """Compute with parameters in this type; None: in their own."""
        for each in parameters:
            if dtype is None or not each.is_floating_point():
                self._types.pop(id(each), None)
            else:
                self._types[id(each)] = dtype

    def forget(self) -> None:
        """Forget the casts at the end of a phase."""
        self._cast.clear()

    def find_type(self, func: Any, args: Sequence[Any]) -> torch.dtype | None:
        """What ``weight.dtype`` is while a module runs; None for other calls and parameters."""
        return self._types.get(id(args[0])) if self._types and func == _DTYPE else None

    def apply(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], cast: Callable[[torch.Tensor, torch.dtype], torch.Tensor]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of a call, with parameters in the type in which it is computed."""
        if not self._types:
            return args, kwargs

        def change(value: Any) -> Any:
            dtype = self._types.get(id(value)) if isinstance(value, nn.Parameter) else None
            if dtype is None or value.dtype is dtype:
                return value
            key = (id(value), torch.is_grad_enabled())
            if key not in self._cast:
                self._cast[key] = cast(value, dtype)
            return self._cast[key]

        return tree_map(change, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]
