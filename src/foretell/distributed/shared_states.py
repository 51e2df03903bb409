"""The parameters that one GPU holds of a model that several share, and their gradients."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.core.layouts import Layout
from foretell.core.workload import StepPhase, Workload
from foretell.distributed.divided_operators import Part, find_layer_parts
from foretell.distributed.step_dimensions import copies_weight
from foretell.distributed.step_units import StepUnits, name_unit

_HALF = ("bf16", "fp16", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStates:
    """Parameters of a unit on one GPU, before data parallelism divides them."""

    dense: float = 0.0  # elements that all copies of the model have
    experts: float = 0.0  # elements of experts, which only some copies have
    frozen: float = 0.0  # elements without a gradient, besides the former
    frozen_experts: float = 0.0
    item_bytes: float = 4.0  # of a gradient
    gathered_bytes: float = 4.0  # of a weight as it is computed with


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGradient:
    """A parameter's gradient on one GPU: bytes of what all copies have, or of experts that only some have."""

    ready: int  # place of the operator after which it is ready
    unit: int  # of its parameter
    dense: float = 0.0
    experts: float = 0.0


def list_gradients(workload: Workload, layout: Layout, units: StepUnits) -> Iterator[SharedGradient]:
    owners = _find_owners(workload)
    parts = find_layer_parts([*workload.layers, *owners])
    for gradient, owner in zip(workload.gradients, owners, strict=True):
        part, unit = parts[owner], units.find(owner, gradient.ready)
        held = gradient.bytes_ / _count_holders(part, layout)
        if part is Part.EXPERTS:
            yield SharedGradient(ready=gradient.ready, unit=unit, experts=held)
        else:
            yield SharedGradient(ready=gradient.ready, unit=unit, dense=held)


def _find_owners(workload: Workload) -> list[str]:
    """The layer of each gradient's parameter."""
    layers = workload.layers or ("",) * len(workload.operators)
    return [gradient.layer or layers[gradient.ready] for gradient in workload.gradients]


def _count_holders(part: Part, layout: Layout) -> int:
    """GPUs among which one copy of a weight is divided."""
    if part is Part.EXPERTS and layout.expert_parallel > 1:
        return layout.expert_parallel
    return layout.tensor_parallel if part in _DIVIDED else 1


_DIVIDED = (Part.COLUMNS, Part.ROWS, Part.VOCABULARY, Part.EXPERTS)


def sum_states(
    workload: Workload, layout: Layout, units: StepUnits, gradients: Sequence[SharedGradient], item: float
) -> tuple[UnitStates, ...]:
    """Elements of each unit's parameters; of trained ones by their gradients."""
    unit_of = np.array([gradient.unit for gradient in gradients], dtype=int)
    dense, experts = (
        np.bincount(unit_of, weights=[getattr(each, kind) for each in gradients], minlength=len(units.names)) / item
        for kind in ("dense", "experts")
    )
    gathered = 2.0 if computes_in_half(workload) else 4.0
    frozen = _find_frozen(workload, item)
    parts = find_layer_parts(frozen)
    held = [
        (name_unit(layer), parts[layer], count / _count_holders(parts[layer], layout))
        for layer, count in frozen.items()
    ]
    return tuple(
        UnitStates(
            dense=own,
            experts=shared,
            frozen=sum(count for unit, part, count in held if unit == name and part is not Part.EXPERTS),
            frozen_experts=sum(count for unit, part, count in held if unit == name and part is Part.EXPERTS),
            item_bytes=item,
            gathered_bytes=gathered,
        )
        for name, own, shared in zip(units.names, dense.tolist(), experts.tolist(), strict=True)
    )


def _find_frozen(workload: Workload, item_bytes: float) -> dict[str, float]:
    """Elements of the parameters of each layer that get no gradient, as most of a model that is fine-tuned by LoRA."""
    trained: dict[str, float] = defaultdict(float)
    for owner, gradient in zip(_find_owners(workload), workload.gradients, strict=True):
        trained[owner] += gradient.bytes_ / item_bytes
    whole = workload.parameters - sum(trained.values())
    if whole < 1:
        return {}
    used: dict[str, float] = defaultdict(float)
    for operator, layer in zip(workload.operators, workload.layers, strict=False):
        if operator.phase is StepPhase.FORWARD and not copies_weight(operator):
            used[layer] += operator.parameters
    left = {layer: count - trained[layer] for layer, count in used.items() if count > trained[layer]}
    # A weight that is used twice, by tied layers or in a checkpoint, is there once.
    share = whole / max(1.0, sum(left.values()))
    return {layer: count * share for layer, count in left.items()}


def computes_in_half(workload: Workload) -> bool:
    return workload.settings.get("precision", "fp32").removeprefix("pure-") in _HALF
