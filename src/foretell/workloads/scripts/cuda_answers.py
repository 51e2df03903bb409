"""Answers a script's questions about CUDA, so that it runs as it would on a machine with one GPU.

Tensors that the script places on the GPU stay on the CPU and carry a mark; their ``device`` is ``cuda:0``. Nothing is
asked of a GPU that the machine may have.
"""

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from foretell.workloads.scripts.answered_gpu import AnsweredGpu

VERSION = "12.8"
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_MARK = "_foretell_on_gpu"
_PLACES = ("device", "map_location")


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
    if args and _is_index(args[0]):
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
    if func is torch.Tensor.to and len(args) > 1 and _is_index(args[1]):
        args = (args[0], CUDA, *args[2:])
    if _is_index(kwargs.get("device")):
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
    return False, None


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
    "record_stream": lambda *_args, **_kwargs: None,
    "get_device": lambda tensor: 0 if is_on_gpu(tensor) else -1,
}


# What torch.cuda answers


class Stream:
    """A stream or an event that does nothing."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.cuda_stream = 0
        self.stream_id = 0
        self.device = CUDA

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def record_event(self, event: Any = None) -> Any:
        """An event."""
        return event or Stream()

    def elapsed_time(self, _end: Any) -> float:
        """Milliseconds between two events."""
        return 1.0

    def query(self) -> bool:
        """Whether all work is done."""
        return True

    def _nothing(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    wait_event = wait_stream = synchronize = record = wait = _nothing


class _Properties(types.SimpleNamespace):
    """The properties of the GPU."""


def _give(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


@contextlib.contextmanager
def _nothing(*_args: Any, **_kwargs: Any) -> Iterator[None]:
    yield


def _answer_facts(gpu: AnsweredGpu) -> dict[str, Any]:
    """What the GPU is. PyTorch itself says from this whether it has bf16 and tf32."""
    return {
        "get_device_name": _give(gpu.name),
        "get_device_capability": _give((gpu.major, gpu.minor)),
        "get_device_properties": _give(_build_properties(gpu)),
        "get_arch_list": _give([f"sm_{gpu.major}{gpu.minor}"]),
        "mem_get_info": _give((gpu.memory_bytes, gpu.memory_bytes)),
    }


def _build_properties(gpu: AnsweredGpu) -> _Properties:
    return _Properties(
        name=gpu.name,
        major=gpu.major,
        minor=gpu.minor,
        total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.units,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block=49152,
        warp_size=32,
        is_integrated=False,
    )


_ANSWERS: dict[str, Any] = {
    "is_available": _give(True),
    "is_initialized": _give(True),
    "device_count": _give(1),
    "current_device": _give(0),
    "can_device_access_peer": _give(False),
    "set_device": _give(None),
    "synchronize": _give(None),
    "init": _give(None),
    "_lazy_init": _give(None),
    "empty_cache": _give(None),
    "ipc_collect": _give(None),
    "manual_seed": _give(None),
    "manual_seed_all": _give(None),
    "seed": _give(None),
    "seed_all": _give(None),
    "initial_seed": _give(0),
    "get_rng_state": lambda *_args: torch.get_rng_state(),
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state": _give(None),
    "set_rng_state_all": _give(None),
    "current_stream": lambda *_args: Stream(),
    "default_stream": lambda *_args: Stream(),
    "set_stream": _give(None),
    "stream": _nothing,
    "device": _nothing,
    "device_of": _nothing,
    "Stream": Stream,
    "Event": Stream,
    "ExternalStream": Stream,
    "memory_summary": _give(""),
    "memory_stats": _give({}),
    "memory_snapshot": _give([]),
    "reset_peak_memory_stats": _give(None),
    "reset_max_memory_allocated": _give(None),
    "reset_max_memory_cached": _give(None),
    "reset_accumulated_memory_stats": _give(None),
    "set_per_process_memory_fraction": _give(None),
    "utilization": _give(0),
    "memory_usage": _give(0),
    "temperature": _give(0),
    "power_draw": _give(0),
    "clock_rate": _give(0),
    **{f"{most}memory_{which}": _give(0) for most in ("", "max_") for which in ("allocated", "reserved", "cached")},
}
_TOOLS = {
    "nvtx": ("range_push", "range_pop", "mark", "range_start", "range_end"),
    "profiler": ("start", "stop", "init"),
}


def replace(owner: Any, name: str, answer: Any) -> None:
    """Let a part of PyTorch answer for the GPU."""
    setattr(owner, name, answer)


def install(gpu: AnsweredGpu) -> None:
    """Let PyTorch answer as on a machine with this GPU."""
    answers = {**_ANSWERS, **_answer_facts(gpu)}
    for name, answer in answers.items():
        replace(torch.cuda, name, answer)
    for module in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
        for name in vars(module).keys() & answers.keys():
            replace(module, name, answers[name])
    for tool, names in _TOOLS.items():
        for name in names:
            replace(getattr(torch.cuda, tool), name, _give(None))
    replace(torch.cuda.nvtx, "range", _nothing)
    replace(torch.version, "cuda", VERSION)
    _replace_module_to()
    _replace_load()
    _replace_generator()
    _replace_parameter()


def _replace_module_to() -> None:
    """``model.to(0)`` and ``model.cuda()`` need a GPU already to read their arguments."""
    to: Any = nn.Module.to
    to_empty: Any = nn.Module.to_empty

    def move(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        named = (CUDA if _is_index(each) else each for each in args)
        return to(self, *named, **{key: CUDA if _is_index(each) else each for key, each in kwargs.items()})

    def move_empty(self: nn.Module, *, device: Any, recurse: bool = True) -> Any:
        return to_empty(self, device=CUDA if _is_index(device) else device, recurse=recurse)

    replace(nn.Module, "to", move)
    replace(nn.Module, "to_empty", move_empty)
    replace(nn.Module, "cuda", lambda self, device=None: self._apply(lambda each: each.cuda()))


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _replace_load() -> None:
    """A file of tensors is read to the CPU."""
    load = torch.load

    def read(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(file, "cpu", *args, **kwargs)

    replace(torch, "load", read)


def _replace_generator() -> None:
    """A generator of random numbers is one of the CPU."""
    base = torch.Generator

    class Generator(base):  # type: ignore[misc, valid-type]
        """A generator of the CPU, wherever the script wants it."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, CPU if is_cuda(device) else device)

    replace(torch, "Generator", Generator)


def _replace_parameter() -> None:
    """A parameter is where its data is."""
    make = nn.Parameter.__new__

    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        parameter = make(cls, data, requires_grad)
        return mark(parameter) if isinstance(data, torch.Tensor) and is_on_gpu(data) else parameter

    replace(nn.Parameter, "__new__", new)
