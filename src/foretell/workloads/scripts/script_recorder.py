"""Records the operators of a step of a script, whose tensors are on the CPU, as those of a GPU."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from foretell.core.workload import StepPhase
from foretell.workloads.autocast import Casts
from foretell.workloads.kernel_costs import KernelCost
from foretell.workloads.known_tensors import list_tensors, remove_data
from foretell.workloads.operator_costs import cost
from foretell.workloads.recorder import Recorder, count_nodes, find_kind
from foretell.workloads.scripts.cuda_answers import is_on_gpu
from foretell.workloads.scripts.large_tensors import WITHOUT_KERNELS, find_packet, strip

_ONES = torch.ops.aten.ones_like.default
_FUSED = "_fused_"  # updates of many parameters in one kernel


class ScriptRecorder(Recorder):
    """A recorder of tensors with data: costs are those of the same tensors on a GPU.

    If the script uses a GPU, only calls with a tensor on it are recorded: data is prepared on the CPU.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__(names)
        self.on_gpu_only = False
        self.costing = True  # False: only which call runs is of interest
        self._all_casts: dict[tuple[torch.dtype, bool], Casts] = {}  # with and without gradients

    @property
    def next_number(self) -> int:
        """The number of the next record."""
        return self._count

    def follow(self, number: int) -> int:
        """The number of the record that a record became part of."""
        while number in self.merged:
            number = self.merged[number]
        return number

    def set_casts(self, dtype: torch.dtype | None) -> None:
        """Cast the arguments of calls from now on as the GPU's autocast does; None: as they are."""
        if dtype is None:
            self.casts = None
        else:
            self.casts = self._all_casts.setdefault((dtype, torch.is_grad_enabled()), Casts(dtype))

    @property
    def cast_parameters(self) -> Iterator[tuple[int, torch.Tensor]]:
        """The parameters that were cast in this batch, with the identity of the original."""
        for casts in self._all_casts.values():
            yield from casts.parameters.items()

    def forget_casts(self) -> None:
        """Forget cast parameters at the end of a phase."""
        for casts in self._all_casts.values():
            casts.forget()

    def forget_graph(self) -> None:
        """End a backward phase. The graph stays known: another backward phase of the step may go through it."""
        self.flush()
        self.forget_casts()
        self._backward.clear()
        self._recomputed.clear()

    def find_cost(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
        """The cost of a call on the GPU. Operators of extensions count as well, though their cost is not known."""
        if func.namespace in WITHOUT_KERNELS or (
            self.on_gpu_only and not any(map(is_on_gpu, list_tensors((args, kwargs, out))))
        ):
            return None
        if find_packet(func).__name__.startswith(_FUSED):
            return _find_fused_cost(func, args)
        sparse = [each for each in list_tensors((args, kwargs)) if each.layout is torch.sparse_coo]
        if sparse:
            return _find_sparse_cost(sparse[0])
        stand_ins: dict[int, torch.Tensor] = {}

        def replace(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
                return value
            if id(value) not in stand_ins:
                stand_ins[id(value)] = strip(value) if value.dim() else remove_data(value)
            return stand_ins[id(value)]

        given, named, result = tree_map(replace, (tuple(args), dict(kwargs), out))
        return super().find_cost(func, given, named, result)

    def add(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Record an ATen call. Compiled code makes calls that are part of no recorded function."""
        if not self.costing:
            return
        if self.phase is StepPhase.FORWARD and self._call is None:
            self._add_single(func, args, kwargs, out)
        elif func is _ONES and self.phase is StepPhase.BACKWARD and torch._C._current_autograd_node() is None:
            return  # the gradient of the loss with respect to itself
        else:
            super().add(func, args, kwargs, out)

    def _are_constant(self, given: Sequence[Any]) -> bool:
        """Whether tensors were computed from none but new ones, such as positions: others are data or parameters."""
        sources = [self._sources.find((each,)) for each in list_tensors(given)]
        return bool(sources) and all(each and each <= self._constants for each in sources)

    def _add_backward(
        self, func: Any, args: Sequence[Any], kernel: KernelCost, out: torch.Tensor, sources: frozenset[int]
    ) -> int:
        """Add an ATen call of the backward phase. If it can be differentiated again, it is a call of its own."""
        number = super()._add_backward(func, args, kernel, out, sources)
        node = count_nodes() - 1
        if torch.is_grad_enabled() and (not self._starts or node > self._starts[-1]):
            record = next((each for each in reversed(self.records) if each.number == number), None)
            if record is not None:
                self._starts.append(node)
                self._ends.append(node + 1)
                self._calls.append(record)
        return number

    def _add_single(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        sources = self._sources.find((*args, *kwargs.values()))
        kernel = self.find_cost(func, args, kwargs, out)
        if kernel is None:
            self._sources.mark(out, sources)
            return
        kind = find_kind(func) or str(func)
        call = self._make(kind, StepPhase.FORWARD, self.layers[-1], sources)
        self._add_forward(call, func, args, kernel)
        self._describe(call, list(list_tensors((*args, *kwargs.values()))), out)
        self._starts.append(call.first_node)
        self._ends.append(count_nodes())
        self._calls.append(call)
        self._sources.mark(out, {call.number})
        self._keep(call)


def _find_sparse_cost(tensor: torch.Tensor) -> KernelCost:
    """The rows that a sparse tensor has are read and written; the rest of the other tensor is not."""
    values = tensor._values()
    return KernelCost(values.numel(), 3 * values.numel() * values.element_size(), 1)


def _find_fused_cost(func: Any, args: Sequence[Any]) -> KernelCost:
    tensors = list(list_tensors(args))
    shapes = tuple(tuple(each.shape) for each in tensors)
    attributes = (("tensors", len(args[0])),)
    kind = find_packet(func).__name__
    flops, moved, kernels = cost(kind, StepPhase.UPDATE, shapes, (), attributes, itemsize=tensors[0].element_size())
    return KernelCost(flops, moved, kernels)
