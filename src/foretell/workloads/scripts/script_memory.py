"""Records the memory of a script on the GPU that it finds: from the start of its process to the end of its second step.

A tensor that the script moves to the GPU gets a storage of its own there, over the same data, so that it lives as long
as the script keeps it. If the script uses no GPU, all tensors count.
"""

import gc
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, compress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.workloads.known_tensors import list_tensors
from foretell.workloads.memory_recorder import CONVOLUTIONS, MemoryRecorder, Running
from foretell.workloads.scripts.cuda_answers import is_on_gpu
from foretell.workloads.scripts.host_facts import is_resident
from foretell.workloads.scripts.large_tensors import run_kernel
from foretell.workloads.scripts.module_paths import ModulePaths
from foretell.workloads.training_step import find_blocks, find_heads

_FIRST_BUCKET_BYTES, _BUCKET_MIB = 2**20, 25  # of DistributedDataParallel


class ScriptMemory(MemoryRecorder):
    """The blocks of a script's GPU."""

    def __init__(self, running: Running, paths: ModulePaths) -> None:
        super().__init__(running)
        self._paths = paths
        self.moved_bytes = 0  # of parameters that were on the host
        self.resident_bytes = 0  # of them, those that have data
        self._length: int | None = None  # tokens of an example
        self._on_gpu = False
        self._suspended = False
        self._first_step = 0  # events before it
        self._update_end = 0  # events at the end of the last update
        self._gone: set[int] = set()  # blocks that are left out
        self._expects_inputs = False
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    # Tensors of the GPU

    def see(self, tensor: torch.Tensor) -> None:
        """A tensor is on the GPU."""
        if self._suspended:
            return
        self._use_gpu()
        if not isinstance(tensor, nn.Parameter):
            self._keep(tensor)
            return
        blocks = len(self._sizes)
        number = self._keep(tensor)
        if number is not None:
            self._kinds.setdefault(number, MemoryKind.WEIGHTS)
        if len(self._sizes) > blocks:  # it was on the host, where it still is
            size = self._sizes[-1]
            self.moved_bytes += size
            self.resident_bytes += size if is_resident(tensor) else 0

    def copy_to_gpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor over the same data with a storage of its own, which is a block of the GPU."""
        if tensor.requires_grad or tensor.layout is not torch.strided or tensor.is_meta:
            return tensor
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            try:
                storage = torch._C._from_dlpack(torch._C._to_dlpack(tensor)).untyped_storage()
            except (RuntimeError, BufferError):  # a type that it does not know
                return tensor
            copy = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.size(), tensor.stride())
            vars(copy).update(vars(tensor))
        self._use_gpu()
        if not self._suspended:
            self._operator = "to"
            number = self._allocate(storage)
            self._sizes[number] = min(storage.nbytes(), tensor.numel() * tensor.element_size())  # without gaps
            self._kinds[number] = MemoryKind.INPUTS
        return copy

    def copy_to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, which does not keep the block of the GPU."""
        if tensor.requires_grad or tensor.layout is not torch.strided or tensor.is_meta:
            return tensor
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            copy: torch.Tensor = run_kernel(torch.ops.aten.clone.default, (tensor,), {})
            vars(copy).update(vars(tensor))
        return copy

    def note_call(self, func: Any, args: Sequence[Any], kwargs: Any, out: Any, *, on_gpu: bool) -> None:
        """Note the results of an ATen call. What autograd has saved carries no mark, but its storage is known."""
        if self._suspended or (self._on_gpu and not on_gpu and not any(map(self._knows, list_tensors((args, kwargs))))):
            return
        if func in CONVOLUTIONS:
            self.note_convolution(func, tuple(args), out)
        self._operator = func.overloadpacket.__name__ if isinstance(func, torch._ops.OpOverload) else str(func)
        for tensor in list_tensors(out):
            self._keep(tensor)

    def _use_gpu(self) -> None:
        """From the first tensor on a GPU on, only such tensors count."""
        if not self._on_gpu:
            self._on_gpu = True
            for each in (self._sizes, self._owners, self._events, self._places, self._phases, self._convolutions):
                each.clear()
            for known in (self._names, self._kinds, self._blocks):
                known.clear()
            self._first_step = self._step = self._update_end = 0

    def _knows(self, tensor: torch.Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._blocks

    def _keep(self, tensor: torch.Tensor) -> int | None:
        """The block of a tensor, allocated now if it is new."""
        if tensor.layout is torch.sparse_coo:
            for part in (tensor._indices(), tensor._values()):
                self._keep(part)
        if tensor.layout is not torch.strided or tensor.is_meta:
            return None
        number = self._find(tensor)
        return self._allocate(tensor.untyped_storage()) if number is None else number

    # What blocks hold

    def enter_model(self, model: nn.Module, given: Any) -> None:
        """A model is called. The tensors that the first call of a batch is given are inputs."""
        if model not in self._models:
            self._models.add(model)
            self._mark_model(model)
        if self._expects_inputs and any(True for _ in model.parameters()):
            self._expects_inputs = False
            for tensor in list_tensors(given):
                number = None if tensor.requires_grad or tensor.layout is not torch.strided else self._find(tensor)
                if number is not None:
                    self._kinds.setdefault(number, MemoryKind.INPUTS)
                if self._length is None and tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32):
                    self._length = tensor.shape[1]

    def _mark_model(self, model: nn.Module) -> None:
        self._hold(((id(each), each) for each in model.parameters()), MemoryKind.WEIGHTS)
        self._hold(((id(each), each) for each in model.buffers()), MemoryKind.BUFFERS)

    def _hold(self, tensors: Iterable[tuple[int, torch.Tensor]], kind: MemoryKind) -> None:
        """Note what tensors hold, and the identity of the parameter that they belong to.

        New ones are those that the calls of PyTorch do not show, such as read from a file.
        """
        for owner, tensor in tensors:
            number = self._keep(tensor) if is_on_gpu(tensor) or not self._on_gpu else None
            if number is not None:
                self._kinds[number] = kind
                if owner in self._paths.names:
                    self._owners[number] = self._number(self._paths.split(self._paths.names[owner]))

    def mark_casts(self, tensors: Iterable[tuple[int, torch.Tensor]]) -> None:
        """Note the weights that autocast has cast for this batch."""
        self._hold(tensors, MemoryKind.CASTS)

    def mark_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note the gradients after a backward phase."""
        self._hold(((id(each), each.grad) for each in parameters if each.grad is not None), MemoryKind.GRADIENTS)

    def end_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the states of an optimizer that has updated its parameters, and buffers that were replaced."""
        for parameter, state in optimizer.state.items():
            self._hold(((id(parameter), each) for each in list_tensors(state)), MemoryKind.OPTIMIZER)
        for model in self._models:
            self._mark_model(model)
        self._update_end = len(self._events)

    @contextmanager
    def suspended(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Leave out an update that the script does not make, but know the tensors that it has replaced."""
        self._suspended = True
        try:
            yield
        finally:
            self._suspended = False
            self._hold(((id(each), each) for each in list_parameters(optimizer)), MemoryKind.WEIGHTS)
            self.end_update(optimizer)

    # Buckets of DistributedDataParallel

    def add_buckets(
        self, parameters: Sequence[nn.Parameter], *, kind: MemoryKind, limit_mib: float | None
    ) -> list[int]:
        """Allocate the buckets in which gradients are exchanged; returns the numbers of their blocks."""
        limit_bytes = int((limit_mib or _BUCKET_MIB) * 2**20)
        self._operator = "DistributedDataParallel"
        numbers = []
        for size in find_bucket_sizes(parameters, limit_bytes):
            number = self._number_block(size)
            self._events.append(number + 1)
            self._places.append(self._owners[number])
            self._kinds[number] = kind
            numbers.append(number)
        return numbers

    def move_to_bucket(self, gradient: torch.Tensor, number: int) -> None:
        """A gradient becomes a view of a bucket: its own block is freed."""
        storage = gradient.untyped_storage()
        key = storage._cdata
        own = self._blocks.get(key)
        if own is not None and own[0] != number:
            self._events.append(-own[0] - 1)
            self._places.append(self._owners[own[0]])
            self._kinds[own[0]] = MemoryKind.GRADIENTS
            self._blocks[key] = number, weakref.ref(storage, lambda _: self._blocks.pop(key, None))

    # Steps

    def begin_recording(self) -> None:
        """The first step begins here, as far as is known."""
        self._steps = 1
        self._first_step = self._step = len(self._events)

    def begin_step(self) -> None:
        """The step after an update begins."""
        super().begin_step()
        self._step = self._update_end

    def forget_step(self) -> None:
        """Leave out what was allocated since the first step began and is there no more; the next step is the first."""
        recent = set(self._events[self._first_step :])
        gone = {each for each in recent if each > 0 and -each in recent}
        kept = [abs(event) not in gone for event in self._events]
        places = [0, *accumulate(kept)]
        self._gone.update(each - 1 for each in gone)
        self._events[:] = compress(self._events, kept)
        self._places[:] = compress(self._places, kept)
        self._phases[:] = [(places[event], phase) for event, phase in self._phases if event >= self._update_end]
        self._convolutions[:] = [
            replace(each, event=places[each.event])
            for each in self._convolutions
            if not self._first_step <= each.event < self._update_end
        ]
        self._steps = 1
        self._first_step = self._step = self._update_end = places[self._update_end]

    def begin_phase(self, phase: StepPhase) -> None:
        """Note that a phase starts; one without an event is none."""
        while self._phases and self._phases[-1][0] == len(self._events):
            self._phases.pop()
        self._expects_inputs = phase is StepPhase.FORWARD
        super().begin_phase(phase)

    def finish(self, *, steps: int, notes: Sequence[str], **facts: Any) -> MemoryTrace:
        """What was recorded. Models that the script keeps without calling them, such as averages, are weights."""
        for each in gc.get_objects():
            if issubclass(type(each), nn.Module) and each not in self._models and "_parameters" in vars(each):
                self._mark_model(each)
        model = self._paths.roots[0] if len(self._paths.roots) == 1 else nn.Module()
        trace = self.build(
            length=self._length,
            repeated=tuple(name for name, _block in find_blocks(model)),
            heads=find_heads(model),
            notes=(*notes, *([] if self._on_gpu else [_NO_GPU])),
            **facts,
        )
        kept = np.array([number not in self._gone for number in range(len(trace.sizes))], dtype=bool)
        numbers = np.cumsum(kept)
        return replace(
            trace,
            sizes=trace.sizes[kept],
            kinds=trace.kinds[kept],
            owners=trace.owners[kept],
            events=np.sign(trace.events) * numbers[np.abs(trace.events) - 1],
            owner_names=tuple((operator, self._paths.describe(layer)) for operator, layer in trace.owner_names),
            second=trace.second if steps > 1 else len(trace.events),
        )


_NO_GPU = "the script uses no GPU; all tensors of its process count"


def list_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The parameters that an optimizer updates."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def find_bucket_sizes(parameters: Iterable[nn.Parameter], limit_bytes: int) -> list[int]:
    """Bytes of each bucket: the last parameters first, which have their gradients first; the first bucket is small.

    https://docs.pytorch.org/docs/stable/notes/ddp.html
    """
    sizes, filled, limit = [], 0, min(_FIRST_BUCKET_BYTES, limit_bytes)
    for parameter in reversed([each for each in parameters if each.requires_grad]):
        filled += parameter.numel() * parameter.element_size()
        if filled >= limit:
            sizes.append(filled)
            filled, limit = 0, limit_bytes
    return [*sizes, filled] if filled else sizes
