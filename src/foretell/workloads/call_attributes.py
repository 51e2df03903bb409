"""Attributes of a call of the model's code that its tensors do not show."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from foretell.core.workload import Attribute
from foretell.workloads.recurrent_costs import CELLS, LAYERS, PACKED

Attributes = dict[str, Attribute]


def find_attributes(kind: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Attributes:
    """The attributes of a call; none for most kinds."""
    find = _FINDERS.get(kind)
    return {} if find is None else find(args, kwargs)


def _find_of_attention(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Attributes:
    """Causal, masked or with fewer heads of keys: what decides which kernel a GPU takes."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    found: Attributes = {}
    if given.get("is_causal"):
        found["causal"] = 1
    if isinstance(given.get("attn_mask"), torch.Tensor):
        found["masked"] = 1
    key = given.get("key")
    if given.get("enable_gqa") and isinstance(key, torch.Tensor):
        found["key_heads"] = key.shape[-3]
    return found


_MULTI_HEAD = tuple(inspect.signature(functional.multi_head_attention_forward).parameters)


def _find_of_multi_head(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Attributes:
    given = {**dict(zip(_MULTI_HEAD, args, strict=False)), **kwargs}
    found: Attributes = {"num_heads": int(given["num_heads"])}
    if not given.get("need_weights", True):
        found["fused"] = 1
        found.update({"causal": 1} if given.get("is_causal") else {})
    return found


def _find_of_layers(args: Sequence[Any], _kwargs: Mapping[str, Any]) -> Attributes:
    """Arguments: input, states, weights, has_biases, layers, dropout, training, bidirectional, batch_first."""
    if isinstance(args[3], (list, tuple)):  # packed: input, sizes of the batches, states, weights, ...
        return {"layers": int(args[5]), "directions": 1 + bool(args[8]), PACKED: max(1, args[1].shape[0])}
    return {"layers": int(args[4]), "directions": 1 + bool(args[7]), "batch_first": int(bool(args[8]))}


_FINDERS: dict[str, Callable[[Sequence[Any], Mapping[str, Any]], Attributes]] = {
    "scaled_dot_product_attention": _find_of_attention,
    "multi_head_attention_forward": _find_of_multi_head,
    **dict.fromkeys(LAYERS, _find_of_layers),
    **dict.fromkeys(CELLS, lambda _args, _kwargs: {"layers": 1, "directions": 1}),
}
