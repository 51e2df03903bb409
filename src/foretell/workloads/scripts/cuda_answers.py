"""Answers a script's questions about CUDA, so that it runs as it would on a machine with one GPU.

Tensors that the script places on the GPU stay on the CPU and carry a mark; their ``device`` is ``cuda:0``. Nothing is
asked of a GPU that the machine may have.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from foretell.workloads.scripts import cuda_tensor_types

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_MARK = "_foretell_on_gpu"


class GpuMemory(Protocol):
    """Hears of every tensor that is placed on the GPU, and gives those that move a storage of their own."""

    def see(self, tensor: torch.Tensor) -> None:
        """A tensor is on the GPU."""

    def copy_to_gpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor for the GPU, from one of the CPU."""

    def copy_to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor for the CPU, from one of the GPU."""


_gpu_memory: GpuMemory | None = None


def use_gpu_memory(memory: GpuMemory | None) -> None:
    """Distinguish this of all tensors on the GPU. Without it, a tensor and its copy on the GPU share their storage."""
    global _gpu_memory  # as PyTorch, whose answers these are, is one for each process
    _gpu_memory = memory


def is_cuda(value: object) -> bool:
    """Whether a value names the GPU."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def name_device(*args: Any, **kwargs: Any) -> torch.device:
    """The device of a script's ``torch.device(…)``; a number alone is a GPU."""
    if args and is_index(args[0]):
        return CUDA
    return torch.device(*args, **kwargs)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether the script has placed this tensor on the GPU, or computed it there."""
    return hasattr(tensor, _MARK)


def mark(value: Any) -> Any:
    """Note that tensors are on the GPU."""
    if isinstance(value, torch.Tensor):
        setattr(value, _MARK, True)
        if _gpu_memory is not None:
            _gpu_memory.see(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            mark(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            mark(each)
    return value


def name_numbers(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Arguments with the GPU for its number, as in ``x.to(0)`` and ``device=rank``."""
    if func is torch.Tensor.to and len(args) > 1 and is_index(args[1]):
        args = (args[0], CUDA, *args[2:])
    if is_index(kwargs.get("device")):
        kwargs = {**kwargs, "device": CUDA}
    return args, kwargs


def move_to_cpu(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Arguments with the CPU for the GPU, and whether the GPU was named."""
    found = any(map(is_cuda, args)) or any(map(is_cuda, kwargs.values()))
    given = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if not found:
        return tuple(args), given, False
    moved = tuple(CPU if is_cuda(value) else value for value in args)
    return moved, {name: CPU if is_cuda(value) else value for name, value in given.items()}, True


# What tensors answer


def answer_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether a call of PyTorch is a question about the GPU, and the answer."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return _answer_attribute(func, args)
    if name in _CALLS and args and isinstance(args[0], torch.Tensor):
        return True, _CALLS[name](*args, **kwargs)
    if func is torch.Tensor.type:
        return _answer_type(*args, **kwargs)
    return False, None


def _answer_type(tensor: torch.Tensor, dtype: Any = None, **_kwargs: Any) -> tuple[bool, Any]:
    """``x.type()`` of a tensor on the GPU, and ``x.type(torch.cuda.FloatTensor)``."""
    if dtype is None:
        return is_on_gpu(tensor), cuda_tensor_types.name_tensor_type(tensor.dtype)
    kind = cuda_tensor_types.find_tensor_type(dtype)
    return (False, None) if kind is None else (True, tensor.to(CUDA, kind.dtype))


def _answer_attribute(func: Any, args: Sequence[Any]) -> tuple[bool, Any]:
    if func == _DEVICE:
        return (True, CUDA) if is_on_gpu(args[0]) else (False, None)
    if func == _IS_CUDA:
        return True, is_on_gpu(args[0])
    return (True, not is_on_gpu(args[0])) if func == _IS_CPU else (False, None)


_DEVICE = torch.Tensor.device.__get__
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_IS_CPU = torch.Tensor.is_cpu.__get__  # type: ignore[attr-defined]


def take_to_gpu(tensor: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
    """A tensor that is on the GPU; modules move their parameters where they are."""
    leaf = isinstance(tensor, nn.Parameter) or (tensor.is_leaf and tensor.requires_grad)
    taken = tensor if leaf or is_on_gpu(tensor) else tensor.view_as(tensor)
    if taken is not tensor and _gpu_memory is not None:
        taken = _gpu_memory.copy_to_gpu(taken)
    mark(taken)
    return taken


def take_to_cpu(tensor: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
    """A tensor that is on the CPU."""
    if not is_on_gpu(tensor):
        return tensor
    copy = tensor.view_as(tensor)
    if is_on_gpu(copy):
        delattr(copy, _MARK)
    return copy if _gpu_memory is None else _gpu_memory.copy_to_cpu(copy)


def _same(tensor: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
    return tensor


_CALLS: dict[str, Callable[..., Any]] = {
    "cuda": take_to_gpu,
    "cpu": take_to_cpu,
    "pin_memory": _same,
    "is_pinned": lambda *_args, **_kwargs: True,
    "get_device": lambda tensor: 0 if is_on_gpu(tensor) else -1,
}


def is_index(value: object) -> bool:
    """Whether a value is the number of a GPU."""
    return isinstance(value, int) and not isinstance(value, bool)


def replace(owner: Any, name: str, answer: Any) -> None:
    """Let a part of PyTorch answer for the GPU."""
    setattr(owner, name, answer)
