"""Lets ``torch.cuda`` and ``torch.accelerator`` answer as on a machine with one GPU."""

import contextlib
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from foretell.workloads.scripts.answered_gpu import AnsweredGpu
from foretell.workloads.scripts.cuda_answers import CPU, CUDA, is_cuda, is_index, is_on_gpu, mark, replace
from foretell.workloads.scripts.cuda_tensor_types import CUDA_TENSOR_TYPES, find_tensor_type

VERSION = "12.8"
CUDNN_VERSION = 91002
NCCL_VERSION = (2, 27, 3)


class Stream:
    """A stream or an event that does nothing."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.cuda_stream = self.native_handle = self.stream_id = self.event_id = self.priority = 0
        self.device_index = 0
        self.device_type = 1  # of CUDA
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

    def is_capturing(self) -> bool:
        """Whether a graph captures what runs here."""
        return False

    def _nothing(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    wait_event = wait_stream = synchronize = record = wait = _nothing


class Graph:
    """A graph of CUDA: what is captured runs at once, so that it is recorded; nothing is replayed."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def pool(self) -> tuple[int, int]:
        """Its memory."""
        return 0, 0

    def _nothing(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    capture_begin = capture_end = replay = reset = instantiate = enable_debug_mode = debug_dump = _nothing


class _Properties(types.SimpleNamespace):
    """The properties of the GPU."""


class _Runtime:
    """The library of CUDA, all of whose functions succeed."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return _give(0)


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
        L2_cache_size=gpu.l2_bytes,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        uuid="00000000-0000-0000-0000-000000000000",
        gcnArchName="",
    )


_MEMORY: dict[str, Any] = {
    "empty_cache": _give(None),
    "memory_stats": lambda *_args, **_kwargs: Counter(),  # no memory is used, whatever is asked for
    "reset_peak_memory_stats": _give(None),
    "reset_accumulated_memory_stats": _give(None),
    **{f"{most}memory_{which}": _give(0) for most in ("", "max_") for which in ("allocated", "reserved")},
}
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
    "cudart": _give(_Runtime()),
    "check_error": _give(None),
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
    "default_generators": (torch.default_generator,),
    "current_stream": lambda *_args: Stream(),
    "default_stream": lambda *_args: Stream(),
    "get_stream_from_external": lambda *_args: Stream(),
    "set_stream": _give(None),
    "stream": _nothing,
    "device": _nothing,
    "device_of": _nothing,
    "Stream": Stream,
    "Event": Stream,
    "ExternalStream": Stream,
    "CUDAGraph": Graph,
    "graph": _nothing,
    "graph_pool_handle": _give((0, 0)),
    "is_current_stream_capturing": _give(False),
    "make_graphed_callables": lambda callables, *_args, **_kwargs: callables,
    "MemPool": Graph,
    "use_mem_pool": _nothing,
    "set_sync_debug_mode": _give(None),
    "get_sync_debug_mode": _give(0),
    "memory_summary": _give(""),
    "memory_snapshot": _give([]),
    "memory_stats_as_nested_dict": _give({}),
    "list_gpu_processes": _give(""),
    "reset_max_memory_allocated": _give(None),
    "reset_max_memory_cached": _give(None),
    "memory_cached": _give(0),
    "max_memory_cached": _give(0),
    "device_memory_used": _give(0),
    "get_per_process_memory_fraction": _give(1.0),
    "set_per_process_memory_fraction": _give(None),
    "_record_memory_history": _give(None),
    "_dump_snapshot": _give(None),
    "_snapshot": _give({}),
    "utilization": _give(0),
    "memory_usage": _give(0),
    "temperature": _give(0),
    "power_draw": _give(0),
    "clock_rate": _give(0),
    **_MEMORY,
}
_ACCELERATOR: dict[str, Any] = {
    **{
        name: _ANSWERS[name] for name in ("is_available", "device_count", "synchronize", "current_stream", "set_stream")
    },
    "current_accelerator": _give(torch.device("cuda")),
    "current_device_index": _give(0),
    "current_device_idx": _give(0),
    "set_device_index": _give(None),
    "set_device_idx": _give(None),
    "device_index": _nothing,
    "empty_host_cache": _give(None),
    **_MEMORY,
}
_TOOLS = {
    "nvtx": ("range_push", "range_pop", "mark", "range_start", "range_end"),
    "profiler": ("start", "stop", "init"),
}


def install(gpu: AnsweredGpu) -> None:
    """Let PyTorch answer as on a machine with this GPU."""
    facts = _answer_facts(gpu)
    _replace_in(torch.cuda, {**_ANSWERS, **facts, **CUDA_TENSOR_TYPES})
    for module in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        _replace_in(module, {**_ANSWERS, **facts}, known_only=True)
    accelerator = {
        **_ACCELERATOR,
        "get_memory_info": facts["mem_get_info"],
        "get_device_capability": _give({"supported_dtypes": {torch.float32, torch.float16, torch.bfloat16}}),
    }
    _replace_in(torch.accelerator, accelerator)
    _replace_in(torch.accelerator.memory, accelerator, known_only=True)
    for tool, names in _TOOLS.items():
        _replace_in(getattr(torch.cuda, tool), dict.fromkeys(names, _give(None)))
    replace(torch.cuda.nvtx, "range", _nothing)
    replace(torch.cuda.nccl, "version", _give(NCCL_VERSION))
    replace(torch, "Stream", Stream)
    replace(torch, "Event", Stream)
    replace(torch.Tensor, "record_stream", _give(None))
    replace(torch.version, "cuda", VERSION)
    _replace_in(
        torch.backends.cudnn,
        {"version": _give(CUDNN_VERSION), "is_available": _give(True), "is_acceptable": _give(False)},
    )
    _replace_module_to()
    _replace_load()
    _replace_generator()
    _replace_parameter()
    _replace_default_type()


def _replace_in(owner: Any, answers: dict[str, Any], *, known_only: bool = False) -> None:
    for name, answer in answers.items():
        if not known_only or hasattr(owner, name):
            replace(owner, name, answer)


def _replace_module_to() -> None:
    """``model.to(0)`` and ``model.cuda()`` need a GPU already to read their arguments."""
    to: Any = nn.Module.to
    to_empty: Any = nn.Module.to_empty

    def move(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        named = (CUDA if is_index(each) else each for each in args)
        return to(self, *named, **{key: CUDA if is_index(each) else each for key, each in kwargs.items()})

    def move_empty(self: nn.Module, *, device: Any, recurse: bool = True) -> Any:
        return to_empty(self, device=CUDA if is_index(device) else device, recurse=recurse)

    replace(nn.Module, "to", move)
    replace(nn.Module, "to_empty", move_empty)
    replace(nn.Module, "cuda", lambda self, device=None: self._apply(lambda each: each.cuda()))


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


def _replace_default_type() -> None:
    """``torch.set_default_tensor_type`` with the type of a tensor on the GPU."""
    choose = torch.set_default_tensor_type

    def set_type(kind: Any) -> None:
        found = find_tensor_type(kind)
        if found is None:
            choose(kind)
        else:
            torch.set_default_dtype(found.dtype)
            torch.set_default_device("cuda")

    replace(torch, "set_default_tensor_type", set_type)
