"""What copies of a model exchange: gradients in buckets, and weights that are divided among them (ZeRO, FSDP)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretell.core.gradients import CAP_BYTES, FIRST_BYTES, fill_buckets
from foretell.core.topology import Group, LayoutGroups
from foretell.distributed.collective_times import Collective
from foretell.distributed.shared_states import UnitStates
from foretell.distributed.shared_steps import SharedStep

Exchanging = Callable[[Collective, float, Group], float]  # seconds of an operation

FULL_SHARDING = ("zero3", "fsdp")
# Buckets of DeepSpeed's and Megatron-LM's optimizers hold at least 40 million elements.
_LARGE_BUCKET_BYTES = 80e6
_GATHERED_ITEM = 2.0  # of weights after an update with divided states


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are reduced together, and the operator after which the last of them is ready."""

    ready: int
    reduce_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Units whose weights are gathered together."""

    units: tuple[int, ...]
    gather_s: float
    reduce_s: float = 0.0


@dataclass
class DataExchanges:
    """The exchanges of a layout's copies, in seconds."""

    step: SharedStep
    groups: LayoutGroups
    exchanging: Exchanging
    _known: dict[tuple[Collective, float, float], float] = field(default_factory=dict, init=False)

    @property
    def _kind(self) -> str:
        layout = self.step.layout
        return layout.data_parallel if layout.copies * layout.context_parallel > 1 else ""

    @property
    def overlaps(self) -> bool:
        return self.step.layout.overlaps

    # Weights

    def gathers(self, batch: int, *, forward: bool) -> bool:
        """Whether a batch gathers weights: with full sharding always, else the first one after an update."""
        if self._kind in FULL_SHARDING:
            return True
        return self._kind in ("zero1", "zero2") and self.overlaps and forward and batch == 0

    def list_gatherings(self, part: int, part_of: np.ndarray, *, forward: bool) -> list[Gathering]:
        """Of a part of the model, in the order of the forward pass."""
        layout, units = self.step.layout, self.step.units
        own = [unit for unit in range(len(units.names)) if part_of[unit] == part]
        layers = [unit for unit in own if units.numbered[unit]]
        size = layout.sharding.layers_per_unit or max(1, len(layers))
        root = [unit for unit in own if not units.numbered[unit]]
        joined = [layers[begin : begin + size] for begin in range(0, len(layers), size)]
        before = [unit for unit in root if not layers or unit < layers[0]]
        after = [unit for unit in root if unit not in before]
        found = [*([before] if before else []), *joined, *([after] if after else [])]
        return [self._gather(tuple(some), forward=forward) for some in found]

    def _gather(self, some: tuple[int, ...], *, forward: bool) -> Gathering:
        states = [self.step.states[unit] for unit in some]
        if self._kind not in FULL_SHARDING:
            return Gathering(units=some, gather_s=self._gather_updated(states))
        gather = self._gather_all(states)
        if forward:
            return Gathering(units=some, gather_s=gather)
        kept = self.step.layout.sharding.keeps_gathered
        return Gathering(units=some, gather_s=0.0 if kept else gather, reduce_s=self._reduce_shards(states))

    def _gather_all(self, states: Sequence[UnitStates]) -> float:
        """Frozen weights are divided as well."""
        dense = sum(each.dense + each.frozen for each in states)
        experts = sum(each.experts + each.frozen_experts for each in states)
        item = states[0].gathered_bytes
        return self._exchange(Collective.ALL_GATHER, dense * item, experts * item)

    def _gather_updated(self, states: Sequence[UnitStates]) -> float:
        dense, experts = _add_up(states)
        return self._exchange(Collective.ALL_GATHER, dense * _GATHERED_ITEM, experts * _GATHERED_ITEM)

    def _reduce_shards(self, states: Sequence[UnitStates]) -> float:
        layout, (dense, experts) = self.step.layout, _add_up(states)
        item = 2.0 if layout.sharding.reduces_in_half else states[0].item_bytes
        seconds = self._exchange(Collective.REDUCE_SCATTER, dense * item, experts * item)
        if self.groups.replicas.gpus > 1:
            shared = dense + (experts if layout.expert_parallel == 1 else 0.0)
            shard = shared * item / self.groups.sharding.gpus
            seconds += self.exchanging(Collective.ALL_REDUCE, shard, self.groups.replicas)
        return seconds

    def _exchange(self, operation: Collective, dense: float, experts: float) -> float:
        key = operation, dense, experts
        if key not in self._known:
            seconds = self.exchanging(operation, dense, self.groups.sharding) if dense else 0.0
            seconds += self.exchanging(operation, experts, self.groups.expert_copies) if experts else 0.0
            self._known[key] = seconds
        return self._known[key]

    # Gradients

    def list_buckets(self, places: np.ndarray) -> list[Bucket]:
        """The buckets of the gradients that become ready at some operators, in their order."""
        if not self._kind or self._kind in FULL_SHARDING or not len(places):
            return []
        operation = Collective.ALL_REDUCE if self._kind == "ddp" else Collective.REDUCE_SCATTER
        return [
            Bucket(ready=ready, reduce_s=self._exchange(operation, dense, experts))
            for ready, dense, experts in self._fill(set(places.tolist()))
        ]

    def _fill(self, places: set[int]) -> Iterator[tuple[int, float, float]]:
        """The place after which each bucket is full, and its bytes."""
        gradients = sorted((each for each in self.step.gradients if each.ready in places), key=lambda each: each.ready)
        first, cap = (FIRST_BYTES, CAP_BYTES) if self._kind == "ddp" else (_LARGE_BUCKET_BYTES, _LARGE_BUCKET_BYTES)
        sizes = (each.dense + each.experts for each in gradients)
        for some in fill_buckets(sizes, first_bytes=first, cap_bytes=cap):
            held = gradients[some]
            yield held[-1].ready, sum(each.dense for each in held), sum(each.experts for each in held)

    # The update

    def find_share(self, states: Sequence[UnitStates]) -> float:
        """Elements that one GPU updates of those that it has."""
        dense, experts = _add_up(states)
        if self._kind in ("", "ddp"):
            return dense + experts
        return dense / self.groups.sharding.gpus + experts / self.groups.expert_copies.gpus

    def gather_after_update(self, states: Sequence[UnitStates]) -> float:
        """Seconds in which updated weights go to all copies, where nothing runs at the same time."""
        if self._kind not in ("zero1", "zero2") or self.overlaps:
            return 0.0
        return self._gather_updated(states)


def _add_up(states: Sequence[UnitStates]) -> tuple[float, float]:
    """Elements with gradients: what all copies have, and experts."""
    return sum(each.dense for each in states), sum(each.experts for each in states)
