"""Which tensors have values that are known, and tensors without data."""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.modules.batchnorm import _NormBase

WHOLE_LIMIT = 2**22  # elements of a known tensor of integers or truth values
FLOAT_LIMIT = 2**18  # of other known tensors
RECENT = 64  # conversions that are kept
DEVICE = torch.ops.prim.device.default  # C++ asks a tensor without data for its device
_UNKNOWN = "_foretell_unknown"


@cache
def find_fake_mode() -> FakeTensorMode:
    """The one mode of all tensors without data, which therefore may be mixed."""
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # errors are raised as well
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.fake_tensor_converter.meta_converter.tensor_memo = _conversions  # type: ignore[assignment]
    return mode


class _Recent(dict[Any, Any]):
    """Keeps the last conversions, and no weak references: those would keep tensors from being swapped (``to``)."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep a conversion."""
        if len(self) >= RECENT:
            self.clear()
        super().__setitem__(key, value)


_conversions = _Recent()


def forget_conversions() -> None:
    """Keep no references to tensors, by which PyTorch would see that they are used elsewhere."""
    _conversions.clear()


def remove_data(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without data of the same form, on the device "cpu"."""
    if isinstance(tensor, FakeTensor):
        return tensor
    with find_fake_mode():
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")


def list_tensors(values: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested sequences and mappings."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for each in values:
            yield from list_tensors(each)
    elif isinstance(values, dict):
        for each in values.values():
            yield from list_tensors(each)


def has_data(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values of its own, be they known or not."""
    return not isinstance(tensor, FakeTensor) and tensor.device.type != "meta"


def is_known(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor are known, and cheap to compute with."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # inside vmap
        return is_known(torch._C._functorch.get_unwrapped(tensor))
    if isinstance(tensor, FakeTensor) or tensor.requires_grad or tensor.device.type == "meta" or not is_small(tensor):
        return False
    return tensor.layout is not torch.strided or not hasattr(tensor.untyped_storage(), _UNKNOWN)


def is_small(tensor: torch.Tensor) -> bool:
    """Whether computing with a tensor of this size costs next to nothing."""
    floating = tensor.is_floating_point() or tensor.is_complex()
    return tensor.numel() <= (FLOAT_LIMIT if floating else WHOLE_LIMIT)


def mark_unknown(tensor: torch.Tensor) -> None:
    """Note that something unknown should have been written into a tensor; its views are unknown as well."""
    if has_data(tensor) and tensor.layout is torch.strided:
        setattr(tensor.untyped_storage(), _UNKNOWN, True)


def replace_tensors(model: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace all parameters, and all buffers whose values are unknown. Tensors shared by modules stay shared."""
    replaced: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for module in model.modules():
        statistics = isinstance(module, _NormBase)  # depend on what the model computes
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None or (name in module._buffers and is_known(tensor) and not statistics):
                continue
            if id(tensor) not in replaced:
                bare = change(tensor)
                learned = isinstance(tensor, nn.Parameter)
                replaced[id(tensor)] = tensor, nn.Parameter(bare, tensor.requires_grad) if learned else bare
            setattr(module, name, replaced[id(tensor)][1])


def move_to_meta(model: nn.Module) -> None:
    """Move all parameters, and all buffers whose values are unknown, to meta tensors."""
    replace_tensors(model, _build_meta)


def _build_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
