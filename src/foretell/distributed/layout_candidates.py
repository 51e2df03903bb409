"""The layouts that are worth trying for a step on so many GPUs."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from foretell.core.layouts import Layout
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.divided_operators import Part, find_parts
from foretell.distributed.step_dimensions import GROUPED_PRODUCTS, Dimensions
from foretell.distributed.step_units import find_units

_KINDS = ("ddp", "zero1", "fsdp")
_LONG = 8192  # tokens of an example from which on sharing a sequence is worth trying
_INTERLEAVES = (1, 2, 4)


class LayoutCandidates:
    """Layouts that the model of a step can have."""

    def __init__(self, workload: Workload) -> None:
        sizes, parts = Dimensions.find(workload), find_parts(workload)
        self._heads = sizes.heads if Part.COLUMNS in parts else 0
        self._tokens = sizes.tokens
        self._layers = sum(find_units(workload).numbered) if sizes.width else 0
        self._experts = _count_experts(workload, parts)

    def list_all(self, topology: Topology, gpus: int) -> Iterator[Layout]:
        """Plain copies first."""
        for tensor, stages, context in product(
            self._list_tensor(topology, gpus), self._list_stages(gpus), self._list_context(gpus)
        ):
            shared = tensor * stages * context
            if gpus % shared:
                continue
            base = Layout(
                gpus=gpus,
                data_parallel="ddp" if gpus > shared else "",
                tensor_parallel=tensor,
                sequence_parallel=tensor > 1,
                pipeline_parallel=stages,
                context_parallel=context,
            )
            yield from self._vary(base)

    def _vary(self, base: Layout) -> Iterator[Layout]:
        shares = base.copies * base.context_parallel > 1
        kinds = [kind for kind in _KINDS if kind != "fsdp" or base.pipeline_parallel == 1] if shares else [""]
        for kind, experts, parts in product(kinds, self._list_experts(base), self._list_interleaves(base)):
            yield replace(base, data_parallel=kind, expert_parallel=experts, interleave=parts)

    def _list_interleaves(self, layout: Layout) -> list[int]:
        """Parts of the model on each stage of a pipeline."""
        stages = layout.pipeline_parallel
        return [each for each in _INTERLEAVES if each == 1 or (stages > 1 and self._layers % (each * stages) == 0)]

    def _list_tensor(self, topology: Topology, gpus: int) -> list[int]:
        most = min(gpus, topology.linked_gpus, 8)
        return [
            each for each in (1, 2, 4, 8) if each == 1 or (each <= most and self._heads and self._heads % each == 0)
        ]

    def _list_stages(self, gpus: int) -> list[int]:
        most = min(self._layers, max(8, gpus // 8))  # longer pipelines wait more than they save
        return [each for each in (1, 2, 4, 8, 16, 32) if each == 1 or (each <= min(gpus, most))]

    def _list_context(self, gpus: int) -> list[int]:
        long = self._tokens >= _LONG
        return [each for each in (1, 2, 4, 8) if each == 1 or (long and each <= gpus and self._tokens % each == 0)]

    def _list_experts(self, base: Layout) -> list[int]:
        sharing = base.copies * base.context_parallel * base.tensor_parallel
        sizes = [
            each for each in (1, 2, 4, 8, 16, 32, 64) if self._experts and not (self._experts % each or sharing % each)
        ]
        return sizes or [1]


def _count_experts(workload: Workload, parts: tuple[Part, ...]) -> int:
    for operator, part in zip(workload.operators, parts, strict=True):
        if part is Part.EXPERTS and operator.kind in GROUPED_PRODUCTS and len(operator.inputs[1]) == 3:
            return operator.inputs[1][0]
    return 0
