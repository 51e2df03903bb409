"""The two modes of PyTorch in which a script runs: calls of functions, and the ATen calls below them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.workloads.cuda_paths import CUDA_RULES, CudaPaths
from foretell.workloads.known_tensors import list_tensors
from foretell.workloads.scripts import cuda_answers
from foretell.workloads.scripts.cuda_answers import CPU, is_on_gpu, mark
from foretell.workloads.scripts.large_tensors import run_kernel
from foretell.workloads.scripts.step_watch import StepWatch


class ScriptCallMode(TorchFunctionMode):
    """Answers what concerns the GPU, and passes calls to the watch."""

    def __init__(self, watch: StepWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the call on the CPU."""
        kwargs = kwargs or {}
        if not self._watch.active or func in _AS_THEY_ARE:
            return func(*args, **kwargs)
        if func is torch.device:
            return cuda_answers.name_device(*args, **kwargs)
        known, answer = cuda_answers.answer_call(func, args, kwargs)
        if known:
            return answer
        args, kwargs = cuda_answers.name_numbers(func, args, kwargs)
        args, kwargs, placed = cuda_answers.move_to_cpu(args, kwargs)
        if not placed and _takes_default_device(func, kwargs):
            kwargs, placed = {**kwargs, "device": CPU}, True
        out = self._watch.call(func, args, kwargs)
        return _mark_result(func, args, kwargs, out, placed=placed)


_AS_THEY_ARE = frozenset({torch.Tensor.backward, torch._C._nn._parse_to})


def _takes_default_device(func: Any, kwargs: dict[str, Any]) -> bool:
    if kwargs.get("device") is not None or not cuda_answers.is_cuda(_device.CURRENT_DEVICE):
        return False
    return func in _device._device_constructors()


# The second result of these, the batches of the time steps, stays on the CPU.
_PACKING = (torch._VF._pack_padded_sequence, torch.ops.aten._pack_padded_sequence.default)


def _mark_result(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, *, placed: bool) -> Any:
    if func is torch.Tensor.to and args and is_on_gpu(args[0]) and not placed and _names_cpu(args, kwargs):
        return cuda_answers.take_to_cpu(out)
    if placed and args and out is args[0]:
        return cuda_answers.take_to_gpu(out)
    if placed or _runs_on_gpu(func, args, kwargs):
        if func == torch.Tensor.data.__set__:  # type: ignore[attr-defined]
            mark(args[0])
        mark(out[0] if func in _PACKING else out)
    return out


def _names_cpu(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    given = (*args[1:], *kwargs.values())
    return any(each == "cpu" or (isinstance(each, torch.device) and each.type == "cpu") for each in given)


class ScriptPathMode(CudaPaths):
    """Calls what a GPU would run in the steps that are recorded for their memory only: costs are those of the CPU's."""

    def __init__(self, watch: StepWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call."""
        if self._watch.costing:
            self._watch.other_on_gpu |= func in CUDA_RULES and torch.is_grad_enabled()
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


def build_call_modes(watch: StepWatch) -> list[TorchFunctionMode]:
    """The modes to enter: calls go to the watch and then, where memory is recorded, to what a GPU would run."""
    return [*([ScriptPathMode(watch)] if watch.memory is not None else []), ScriptCallMode(watch)]


def _runs_on_gpu(func: Any, args: Sequence[Any], kwargs: Any) -> bool:
    """Whether the results of a call are on the GPU; a copy is where it is written to."""
    if func in _COPIES:
        return is_on_gpu(args[0])
    return any(map(is_on_gpu, list_tensors((args, kwargs))))


_COPIES = frozenset({torch.Tensor.copy_, torch.ops.aten.copy_.default})


class ScriptKernelMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs ATen calls, those on large tensors without data, and records them."""

    supports_higher_order_operators = True

    def __init__(self, watch: StepWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record the call."""
        kwargs = kwargs or {}
        watch = self._watch
        if not watch.active or watch.loading:
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            out = run_kernel(func, args, kwargs)
            on_gpu = _runs_on_gpu(func, args, kwargs)
            if watch.memory is not None:
                watch.memory.note_call(func, args, kwargs, out, on_gpu=on_gpu)
            if on_gpu:
                mark(out[0] if func in _PACKING else out)
            if watch.recorder is not None and watch.watching:
                watch.recorder.add(func, args, kwargs, out)
        return out
