"""What a GPU holds at least by a layout: a bound that is found at once, for layouts that need not be replayed."""

from foretell.core.layouts import Layout, find_experts
from foretell.core.memory import MemoryKind, MemoryTrace

_DIVIDED_BY = {  # of states, by what is divided among copies
    "zero1": (MemoryKind.OPTIMIZER,),
    "zero2": (MemoryKind.OPTIMIZER, MemoryKind.GRADIENTS),
    "zero3": (MemoryKind.OPTIMIZER, MemoryKind.GRADIENTS, MemoryKind.WEIGHTS),
    "fsdp": (MemoryKind.OPTIMIZER, MemoryKind.GRADIENTS, MemoryKind.WEIGHTS),
}
_STATES = (MemoryKind.WEIGHTS, MemoryKind.OPTIMIZER)  # which are there all the time


class LeastMemory:
    """The bound for layouts of one step; 0 without a trace."""

    def __init__(self, trace: MemoryTrace | None) -> None:
        self._dense: dict[MemoryKind, int] = {}
        self._experts: dict[MemoryKind, int] = {}
        if trace is None:
            return
        inside = [find_experts(layer) for _, layer in trace.owner_names]
        of_experts = [inside[owner] for owner in trace.owners.tolist()]
        for kind in _STATES:
            sizes = [
                (int(size), expert)
                for size, own, expert in zip(trace.sizes.tolist(), trace.kinds.tolist(), of_experts, strict=True)
                if own == kind
            ]
            self._dense[kind] = sum(size for size, expert in sizes if not expert)
            self._experts[kind] = sum(size for size, expert in sizes if expert)

    def find_least(self, layout: Layout) -> float:
        """Bytes of weights and states of the optimizer, if layers could be divided without a rest."""
        divided = _DIVIDED_BY.get(layout.data_parallel, ())
        total = 0.0
        for kind in self._dense:
            if layout.offload == "parameters" or (layout.offload == "optimizer" and kind is MemoryKind.OPTIMIZER):
                continue
            share = layout.tensor_parallel * layout.pipeline_parallel
            share *= layout.sharding_gpus if kind in divided else 1
            total += self._dense[kind] / share + self._experts[kind] / (share * layout.expert_parallel)
        return total
