"""The kernels that a GPU runs where a CPU runs others, because they keep other tensors for the backward phase."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from foretell.workloads.meta_results import attend, attend_on_cpu


class CudaPaths(TorchFunctionMode):
    """Calls what PyTorch calls on a GPU: dropout that keeps a mask of truth values, fused attention."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call."""
        rule = CUDA_RULES.get(func)
        return rule(func, *args, **(kwargs or {})) if rule is not None else func(*args, **(kwargs or {}))


class CpuPaths(TorchFunctionMode):
    """Calls the fused attention of a CPU, which PyTorch does not choose for tensors without data."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call."""
        called = attend_on_cpu if func is functional.scaled_dot_product_attention else func
        return called(*args, **(kwargs or {}))


def _drop(
    func: Callable[..., Any], given: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if inplace or not training or not 0 < p < 1 or not torch.is_grad_enabled():
        return func(given, p, training, inplace)
    return torch.native_dropout(given, p, True)[0]


def _drop_values(func: Callable[..., Any], given: torch.Tensor, p: float, train: bool) -> Any:
    return _drop(lambda *args: func(*args[:3]), given, p, train)


def _attend(func: Callable[..., Any], query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if query.dim() != 4:  # without heads: products and a softmax
        return func(query, *args, **kwargs)
    return attend(query, *args, **kwargs)


CUDA_RULES: Mapping[Any, Callable[..., Any]] = {
    functional.dropout: _drop,
    torch.dropout: _drop_values,
    functional.scaled_dot_product_attention: _attend,
}
