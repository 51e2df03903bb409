"""What one GPU does of a step that several share: its operators, and what it exchanges between them."""

from dataclasses import dataclass

from foretell.core.layouts import Layout
from foretell.core.workload import Workload
from foretell.distributed.collective_times import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """An exchange that the following operators wait for."""

    operation: Collective
    bytes_: float  # as CollectiveTimes counts them
    group: str  # a field of LayoutGroups: tensor, context, experts
    after: int  # place of the operator whose result is exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part of a model that runs as a whole: a repeated layer, or what is before or after all of them."""

    name: str  # of the layer; empty for what belongs to none
    forward: tuple[int, ...]  # places of its operators
    backward: tuple[int, ...]
    update: tuple[int, ...]
    weight_bytes: float = 0.0  # of one GPU as a layer computes with them, before FSDP divides them
    gradient_bytes: float = 0.0
    result_bytes: float = 0.0  # of one batch, which the next stage of a pipeline needs


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStep:
    """One batch on one GPU, all stages of a pipeline included, and the update of its part of the weights."""

    workload: Workload  # with the shapes that one GPU has
    layout: Layout
    units: tuple[Unit, ...]  # in the order of the forward phase
    communications: tuple[Communication, ...] = ()  # sorted by place
