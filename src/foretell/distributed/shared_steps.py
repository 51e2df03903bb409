"""What one GPU does of a step that several share: its operators by unit, and what it exchanges in each."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretell.core.layouts import Layout
from foretell.core.workload import StepPhase, Workload
from foretell.distributed.collective_times import Collective
from foretell.distributed.divided_operators import Part, divide_operators, find_parts
from foretell.distributed.shared_states import (
    SharedGradient,
    UnitStates,
    computes_in_half,
    list_gradients,
    sum_states,
)
from foretell.distributed.step_dimensions import (
    ATTENTION,
    GROUPED_PRODUCTS,
    PRODUCTS,
    Dimensions,
    count_item_bytes,
)
from foretell.distributed.step_units import FORWARD, StepUnits, find_units
from foretell.steps.kernels.launch_times import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An operation of several GPUs inside of a layer; what follows waits for it."""

    place: int  # of the operator whose results are exchanged
    operation: Collective
    bytes_: float  # as CollectiveTimes counts them
    group: str  # a field of LayoutGroups: tensor, context, experts
    overlaps: bool = False  # with the operator at that place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedStep:
    """One batch on one GPU, all stages of a pipeline included. The update is that of the whole model."""

    workload: Workload  # with the shapes that one GPU has
    layout: Layout
    units: StepUnits
    states: tuple[UnitStates, ...]  # of each unit
    gradients: tuple[SharedGradient, ...]
    exchanges: tuple[Exchange, ...] = ()
    result_bytes: float = 0.0  # of one batch between two units, which a pipeline sends
    whole_parameters: float = 0.0  # of the model, by its gradients


def share_step(workload: Workload, layout: Layout) -> SharedStep:
    """The part of one GPU.

    Raises:
        SpecError: The model cannot be divided so.
    """
    parts = find_parts(workload)
    units = find_units(workload)
    divided = divide_operators(workload, layout, parts)
    if layout.tensor_parallel > 1 and workload.settings.get("compile") != "yes":
        divided = replace(divided, settings={HOST: "functions", **divided.settings})
    gradients = tuple(list_gradients(workload, layout, units))
    item = 2.0 if workload.settings.get("precision", "").startswith("pure-") else 4.0
    finder = _Exchanges(workload, divided, layout, units, parts)
    return SharedStep(
        workload=divided,
        layout=layout,
        units=units,
        states=sum_states(workload, layout, units, gradients, item),
        gradients=gradients,
        exchanges=tuple(finder.list_all()),
        result_bytes=_find_result(workload, layout, units),
        whole_parameters=sum(gradient.bytes_ for gradient in workload.gradients) / item,
    )


def _find_result(workload: Workload, layout: Layout, units: StepUnits) -> float:
    """Bytes of what one unit gives to the next: the embeddings of its tokens, or else the median of all units."""
    sizes = Dimensions.find(workload)
    if not sizes.width:
        forward = np.flatnonzero(units.pass_of == FORWARD).tolist()
        last = {int(units.unit_of[place]): workload.operators[place] for place in forward}
        results = [math.prod(operator.output) * count_item_bytes(operator.dtype) for operator in last.values()]
        return float(np.median(results)) if results else 0.0
    shared = layout.context_parallel * (layout.tensor_parallel if layout.sequence_parallel else 1)
    return sizes.batch * sizes.tokens * sizes.width * (2.0 if computes_in_half(workload) else 4.0) / shared


class _Exchanges:
    """Finds what the layers exchange."""

    def __init__(
        self, whole: Workload, divided: Workload, layout: Layout, units: StepUnits, parts: Sequence[Part]
    ) -> None:
        self._whole, self._workload, self._layout, self._units, self._parts = whole, divided, layout, units, parts
        self._layers = whole.layers or ("",) * len(whole.operators)
        self._sizes = Dimensions.find(whole)

    def list_all(self) -> Iterator[Exchange]:
        layout = self._layout
        if layout.tensor_parallel > 1:
            yield from self._list_rows()
            yield from self._list_columns()
            yield from self._list_words()
        if layout.context_parallel > 1:
            yield from self._list_attentions()
        if layout.expert_parallel > 1:
            yield from self._list_experts()

    def _is_product(self, place: int, part: Part, phase: StepPhase) -> bool:
        operator = self._workload.operators[place]
        return self._parts[place] is part and operator.phase is phase and operator.kind in PRODUCTS

    def _list_rows(self) -> Iterator[Exchange]:
        """The results of rows are summed over the GPUs; with sequence parallelism, each keeps its part of them."""
        for place, operator in enumerate(self._workload.operators):
            if self._is_product(place, Part.ROWS, StepPhase.FORWARD):
                yield from self._reduce(place, math.prod(operator.output) * count_item_bytes(operator.dtype))

    def _list_columns(self) -> Iterator[Exchange]:
        """The gradients of what columns take are summed, once for those that take the same."""
        last: dict[str, int] = {}
        for place, layer in enumerate(self._layers):
            if self._is_product(place, Part.COLUMNS, StepPhase.BACKWARD):
                last[layer.rpartition(".")[0]] = place
        for place in last.values():
            operator = self._workload.operators[place]
            yield from self._reduce(place, math.prod(operator.inputs[0]) * count_item_bytes(operator.dtype))

    def _list_words(self) -> Iterator[Exchange]:
        for place, operator in enumerate(self._workload.operators):
            if self._parts[place] is not Part.VOCABULARY:
                continue
            item = count_item_bytes(operator.dtype)
            if operator.kind == "embedding" and operator.phase is StepPhase.FORWARD:
                yield from self._reduce(place, math.prod(operator.output) * item)
            elif operator.kind == "linear" and operator.phase is StepPhase.BACKWARD:
                yield from self._reduce(place, math.prod(operator.inputs[0]) * item)

    def _reduce(self, place: int, bytes_: float) -> Iterator[Exchange]:
        if not self._layout.sequence_parallel:
            yield Exchange(place=place, operation=Collective.ALL_REDUCE, bytes_=bytes_, group="tensor")
            return
        for operation in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER):
            overlaps = self._layout.overlaps_tensors
            yield Exchange(place=place, operation=operation, bytes_=bytes_, group="tensor", overlaps=overlaps)

    def _list_attentions(self) -> Iterator[Exchange]:
        """Keys and values go around while parts of the attention are computed; their gradients, too."""
        heads = max(1, self._sizes.key_heads)
        held = -(-heads // self._layout.tensor_parallel) / heads  # of the heads, by each GPU
        for place, operator in enumerate(self._whole.operators):
            if operator.kind != ATTENTION or operator.phase is StepPhase.UPDATE or len(operator.inputs) < 3:
                continue
            bytes_ = held * sum(map(math.prod, operator.inputs[1:3])) * count_item_bytes(operator.dtype)
            for _ in range(1 if operator.phase is StepPhase.FORWARD else 2):
                yield Exchange(
                    place=place, operation=Collective.ALL_GATHER, bytes_=bytes_, group="context", overlaps=True
                )

    def _list_experts(self) -> Iterator[Exchange]:
        """Tokens go to the GPUs of their experts and come back, in each pass through a layer's experts."""
        firsts: dict[tuple[str, StepPhase, int], int] = {}
        for place, operator in enumerate(self._workload.operators):
            if self._parts[place] is Part.EXPERTS and operator.kind in (*GROUPED_PRODUCTS, "bmm"):
                firsts.setdefault((self._layers[place], operator.phase, int(self._units.pass_of[place])), place)
        for place in firsts.values():
            operator = self._workload.operators[place]
            rows, item = math.prod(operator.inputs[0][:-1]), count_item_bytes(operator.dtype)
            sent = float(rows * (self._sizes.width or operator.inputs[0][-1]) * item)
            for _ in range(2):
                yield Exchange(place=place, operation=Collective.ALL_TO_ALL, bytes_=sent, group="experts")
