"""Mixed precision on tensors without a device: the casts that CUDA's autocast makes, by its lists.

https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-autocast-to-float16
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_LOWER = frozenset({
    "matmul", "mm", "mv", "bmm", "addmm", "addmv", "addbmm", "baddbmm", "linear",
    "multi_head_attention_forward", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "prelu", "scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "lstm_cell",
    "gru_cell", "einsum", "chain_matmul",
})  # fmt: skip
_HIGHER = frozenset({
    "__pow__", "__rpow__", "acos", "asin", "cosh", "sinh", "tan", "cross_entropy", "nll_loss",
    "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cdist", "cumprod", "cumsum", "dist", "erfinv",
    "exp", "expm1", "gelu_", "group_norm", "huber_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10",
    "log1p", "log2", "log_softmax", "mse_loss", "norm", "normalize", "poisson_nll_loss", "prod", "reciprocal",
    "rsqrt", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "sum", "renorm",
    "triplet_margin_loss",
})  # fmt: skip
_WIDEST = frozenset({"cat", "stack", "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "index_put"})


class Casts:
    """Which tensors are cast before a call; parameters once a batch."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._kept: dict[int, torch.Tensor] = {}

    def forget(self) -> None:
        """A batch has ended."""
        self._kept.clear()

    def apply(
        self, kind: str, args: Sequence[Any], kwargs: Mapping[str, Any], cast: Callable[..., torch.Tensor]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """A call's arguments, cast where they must be."""
        wanted = self._find_dtype(kind, args)
        if wanted is None:
            return args, kwargs

        same: dict[int, Any] = {}  # queries that are keys remain so

        def change(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(change(each) for each in value)
            if id(value) not in same:
                same[id(value)] = self._change(value, wanted, cast)
            return same[id(value)]

        return tuple(change(value) for value in args), {name: change(value) for name, value in kwargs.items()}

    def _change(self, value: Any, wanted: torch.dtype, cast: Callable[..., torch.Tensor]) -> Any:
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or value.dtype in (wanted, torch.float64)
        ):
            return value
        if not (value.is_leaf and value.requires_grad):
            return cast(value, wanted)
        if id(value) not in self._kept:
            self._kept[id(value)] = cast(value, wanted)
        return self._kept[id(value)]

    def _find_dtype(self, kind: str, args: Sequence[Any]) -> torch.dtype | None:
        if kind in _LOWER:
            return self._dtype
        if kind in _HIGHER:
            return torch.float32
        if kind in _WIDEST:
            given = [each for value in args for each in (value if isinstance(value, (list, tuple)) else [value])]
            dtypes = {each.dtype for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()}
            return torch.float32 if len(dtypes) > 1 else None
        return None
