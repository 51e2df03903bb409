"""Records when a step allocates and frees memory: storages, not tensors, so that views count once.

A block is allocated when an ATen call returns a storage that was not there before, and freed when its last reference
goes: the same moments at which PyTorch asks its allocator on a GPU.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.core.memory import Convolution, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.workloads.known_tensors import DEVICE, list_tensors


class Running(Protocol):
    """Knows which call runs: a recorder of calls."""

    def find_running(self) -> tuple[str, str]:
        """The kind and the layer of the call that runs now, or whose backward does."""


_aten = torch.ops.aten
_KNOWN = frozenset(
    {"aten", "prim", "prims", "profiler", "c10d", "_c10d_functional"}
)  # allocate nothing but their results


class MemoryRecorder:
    """The blocks and events so far. Who runs is asked of the recorder of calls."""

    def __init__(self, recorder: Running) -> None:
        self._recorder = recorder
        self._sizes: list[int] = []
        self._owners: list[int] = []
        self._events: list[int] = []
        self._places: list[int] = []
        self._names: dict[tuple[str, str], int] = {}
        self._kinds: dict[int, MemoryKind] = {}
        self._blocks: dict[int, tuple[int, Any]] = {}  # by the address of the storage
        self._phases: list[tuple[int, StepPhase]] = []
        self._step = 0  # first event of the step that runs
        self._operator = ""
        self._steps = 0
        self._convolutions: list[Convolution] = []
        self._extensions: dict[str, None] = {}

    @property
    def operators(self) -> set[str]:
        """The kinds of operators that allocated so far."""
        return {operator for operator, _layer in self._names}

    def hold(self, tensors: Iterable[tuple[str, torch.Tensor]], kind: MemoryKind) -> None:
        """Note weights and buffers, by their paths, which are there already."""
        for path, tensor in tensors:
            number = self._find(tensor)
            if number is None:
                number = self._add(tensor.untyped_storage())
            self._kinds[number] = kind
            self._own(number, path)

    def allocate(self, tensor: torch.Tensor, kind: MemoryKind) -> None:
        """Note a block that the step allocates outside of PyTorch's calls, such as a batch that is copied."""
        number = self._find(tensor)
        if number is None:
            number = self._allocate(tensor.untyped_storage())
        self._kinds[number] = kind

    def mark(self, tensors: Iterable[torch.Tensor], kind: MemoryKind) -> None:
        """Note what blocks hold that were recorded."""
        for tensor in tensors:
            number = self._find(tensor)
            if number is not None:
                self._kinds[number] = kind

    def assign(self, tensors: Iterable[tuple[str, torch.Tensor]], kind: MemoryKind) -> None:
        """Note what blocks hold that were recorded, and the path of the weight that they belong to."""
        for path, tensor in tensors:
            number = self._find(tensor)
            if number is not None:
                self._kinds[number] = kind
                self._own(number, path)

    def note(self, func: Any, out: Any) -> None:
        """Note the new storages among the results of an ATen call."""
        if getattr(func, "namespace", "aten") not in _KNOWN:
            self._extensions.setdefault(str(func))
        for tensor in list_tensors(out):
            if tensor.layout is not torch.strided:
                for part in _find_parts(tensor):
                    self.note(func, part)
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._blocks:
                self._operator = getattr(func, "overloadpacket", func).__name__
                self._allocate(storage)

    def note_convolution(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """Note the shapes of a convolution of the first step, before what it allocates."""
        if self._steps > 1:
            return
        backward = func is _aten.convolution_backward.default
        images, filters = args[1:3] if backward else args[:2]
        _, stride, _, dilation, transposed, _, groups = args[3:10] if backward else args[2:9]
        convolution = Convolution(
            event=len(self._events),
            backward=backward,
            images=tuple(images.shape),
            filters=tuple(filters.shape),
            results=tuple((args[0] if backward else out).shape),
            stride=tuple(stride),
            dilation=tuple(dilation),
            groups=groups,
            transposed=transposed,
            itemsize=images.element_size(),
        )
        self._convolutions.append(convolution)

    def begin_step(self) -> None:
        """Note that a step starts."""
        self._step = len(self._events)
        self._steps += 1

    def begin_phase(self, phase: StepPhase) -> None:
        """Note that a phase starts. What was allocated before the backward phase and remains was kept for it."""
        self._phases.append((len(self._events), phase))
        if phase is StepPhase.BACKWARD:
            allocated = {event - 1 for event in self._events[self._step :] if event > 0}
            for number, _ in self._blocks.values():
                if number in allocated:
                    self._kinds.setdefault(number, MemoryKind.ACTIVATIONS)

    def build(self, **facts: Any) -> MemoryTrace:
        """What was recorded."""
        kinds = [self._kinds.get(number, MemoryKind.TEMPORARY) for number in range(len(self._sizes))]
        return MemoryTrace(
            sizes=np.array(self._sizes, dtype=np.int64),
            kinds=np.array(kinds, dtype=np.int64),
            owners=np.array(self._owners, dtype=np.int64),
            events=np.array(self._events, dtype=np.int64),
            places=np.array(self._places, dtype=np.int64),
            owner_names=tuple(self._names),
            phases=tuple(self._phases),
            second=self._step,
            convolutions=tuple(self._convolutions),
            extensions=tuple(self._extensions),
            **facts,
        )

    def _find(self, tensor: torch.Tensor) -> int | None:
        found = self._blocks.get(tensor.untyped_storage()._cdata)
        return found[0] if found is not None else None

    def _allocate(self, storage: torch.UntypedStorage) -> int:
        number = self._add(storage)
        self._events.append(number + 1)
        self._places.append(self._owners[number])
        return number

    def _add(self, storage: torch.UntypedStorage) -> int:
        number, key = self._number_block(storage.nbytes()), storage._cdata

        def free(_reference: Any) -> None:
            self._blocks.pop(key, None)
            self._events.append(-number - 1)
            self._places.append(self._owners[number])

        self._blocks[key] = number, weakref.ref(storage, free)
        return number

    def _number_block(self, size: int) -> int:
        self._sizes.append(size)
        self._owners.append(self._find_owner())
        return len(self._sizes) - 1

    def _find_owner(self) -> int:
        operator, layer = self._recorder.find_running()
        return self._number((operator or self._operator, layer))

    def _own(self, number: int, path: str) -> None:
        layer, _, name = path.rpartition(".")
        self._owners[number] = self._number((name, layer))

    def _number(self, owner: tuple[str, str]) -> int:
        return self._names.setdefault(owner, len(self._names))


CONVOLUTIONS = frozenset({_aten.convolution.default, _aten.convolution_backward.default})


class MemoryMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Passes the results of ATen calls to a recorder of memory."""

    supports_higher_order_operators = True

    def __init__(self, memory: MemoryRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory = memory

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call and note what it allocated."""
        if func is DEVICE:
            return args[0].device
        out = func(*args, **(kwargs or {}))
        if func in CONVOLUTIONS:
            self._memory.note_convolution(func, args, out)
        self._memory.note(func, out)
        return out


def _find_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The indices and values of a sparse tensor."""
    if tensor.layout is torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()
