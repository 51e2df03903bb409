"""The casts of CUDA's autocast, for tensors without a device.

The lists are those of https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-autocast-to-float16, by the names
that the code of a model calls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

_LOWER_PRECISION = frozenset({
    "matmul", "__rmatmul__", "mm", "mv", "bmm", "addmm", "addmv", "addr", "addbmm", "baddbmm", "linear", "einsum",
    "chain_matmul", "multi_dot", "linalg_multi_dot", "linalg_vecdot", "vecdot", "prelu",
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "multi_head_attention_forward", "scaled_dot_product_attention",
    "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
})  # fmt: skip
_FLOAT32 = frozenset({
    "__pow__", "__rpow__", "acos", "asin", "cosh", "sinh", "tan", "erfinv", "exp", "expm1", "log", "log10", "log1p",
    "log2", "reciprocal", "rsqrt", "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm",
    "frobenius_norm", "nuclear_norm", "cosine_similarity", "logsumexp", "dist", "pdist", "cdist", "renorm",
    "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "normalize", "interpolate",
    "upsample",
})  # fmt: skip
# These read half and write single precision in one kernel.
_FLOAT32_RESULT = frozenset({"softmax", "softmin", "log_softmax", "cross_entropy"})
_FLOAT32_BY_ARGUMENT = frozenset({"prod", "cumprod", "cumsum", "sum", "norm"})
_PROMOTED = frozenset({
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sample", "index_put", "tensordot",
    "scatter_add",
})  # fmt: skip
_HALF = (torch.float16, torch.bfloat16)


class Casts:
    """Casts the arguments of calls as autocast does; parameters once for each batch."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._enabled = [True]  # by the contexts of the model's code, the innermost last
        self._cast_parameters: dict[int, torch.Tensor] = {}

    @property
    def parameters(self) -> Mapping[int, torch.Tensor]:
        """The parameters that were cast in this batch, by the identity of the originals."""
        return self._cast_parameters

    def forget(self) -> None:
        """Forget the cast parameters at the end of a batch."""
        self._cast_parameters.clear()

    @property
    def enabled(self) -> bool:
        """Whether calls are cast: not within ``torch.autocast(..., enabled=False)`` of the model's code."""
        return self._enabled[-1]

    @contextmanager
    def follow_contexts(self) -> Iterator[None]:
        """Let contexts of the model's code switch the casts off and on, and its questions have their answers."""

        def create(context: torch.autocast, *given: Any, enabled: bool = True, **_named: Any) -> None:
            # As the code asks for it: PyTorch switches it off on a machine without the device.
            context._enabled = given[2] if len(given) > 2 else enabled

        def enter(context: torch.autocast) -> torch.autocast:
            self._enabled.append(context._enabled)
            return context

        def leave(*_exception: object) -> None:
            self._enabled.pop()

        replaced: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (torch.autocast, "__init__", create),
            (torch.autocast, "__enter__", enter),
            (torch.autocast, "__exit__", leave),
            (torch, "is_autocast_enabled", lambda *_device: self.enabled),
            (torch._C, "_is_any_autocast_enabled", lambda: self.enabled),  # recurrent layers ask
            (torch, "get_autocast_dtype", lambda *_device: self._dtype),
        )
        with ExitStack() as stack:
            for owner, name, function in replaced:
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, function)
            yield

    def apply(
        self, kind: str, args: Sequence[Any], kwargs: Mapping[str, Any], cast: Callable[..., torch.Tensor]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of a call, cast where autocast casts them."""
        if not self.enabled:
            return args, kwargs
        if kind in _FLOAT32_BY_ARGUMENT and _is_half(args) and kwargs.get("dtype") is None:
            return args, {**kwargs, "dtype": torch.float32}
        dtype = self._find_dtype(kind, args, kwargs)
        if dtype is None:
            return args, kwargs

        same: dict[int, Any] = {}  # a tensor that is query and key remains one tensor
        changed = tuple(self._change_all(value, dtype, cast, same) for value in args)
        return changed, {name: self._change_all(value, dtype, cast, same) for name, value in kwargs.items()}

    def _change_all(  # a function in :meth:`apply` would call itself and so keep its tensors until the next collection
        self, value: Any, dtype: torch.dtype, cast: Callable[..., torch.Tensor], same: dict[int, Any]
    ) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._change_all(each, dtype, cast, same) for each in value)
        if id(value) not in same:
            same[id(value)] = self._change(value, dtype, cast)
        return same[id(value)]

    def _change(self, value: Any, dtype: torch.dtype, cast: Callable[..., torch.Tensor]) -> Any:
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or value.dtype in (dtype, torch.float64)
        ):
            return value
        if not (value.is_leaf and value.requires_grad):
            return cast(value, dtype)
        if id(value) not in self._cast_parameters:
            self._cast_parameters[id(value)] = cast(value, dtype)
        return self._cast_parameters[id(value)]

    def _find_dtype(self, kind: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.dtype | None:
        if kind in _LOWER_PRECISION:
            return self._dtype
        if kind in _FLOAT32 and kwargs.get("mode") != "area":  # interpolation by pooling
            return torch.float32
        if kind in _PROMOTED:
            given = [each for value in args for each in (value if isinstance(value, (list, tuple)) else [value])]
            dtypes = {each.dtype for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()}
            return torch.float32 if len(dtypes) > 1 else None
        return None


def _is_half(args: Sequence[Any]) -> bool:
    return bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype in _HALF


def give_single_precision(
    casts: Casts | None, kind: str, func: Callable[..., Any], args: Sequence[Any]
) -> Callable[..., Any]:
    """The call with a result in single precision, where autocast asks for it; its cast belongs to the call."""
    if casts is None or not casts.enabled or kind not in _FLOAT32_RESULT or not _is_half(args):
        return func
    return lambda first, *others, **named: func(first.to(torch.float32), *others, **named)


def is_fused_cast(kind: str, func: Any) -> bool:
    """Whether an ATen call is a cast that the kernel of a call does while it reads or writes."""
    return kind in _FLOAT32_RESULT and func is torch.ops.aten._to_copy.default


def discount_cast(given: torch.Tensor, result: torch.Tensor) -> float:
    """Bytes that a kernel moves less because it casts itself: one side is in half precision."""
    return -float(given.numel() * abs(given.element_size() - result.element_size()))
