"""Products in eight bits as Transformer Engine runs them.

Inputs and gradients are cast in both layouts at once; weights are cast once in a step, not for each batch. One factor
for a tensor needs a pass that finds its largest value, one for 32 elements (MXFP8) does not. The words of the output,
routers and attention stay in half precision. https://docs.nvidia.com/deeplearning/transformer-engine/user-guide
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.core.tensor_roles import TensorRole, find_tensor_role
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.fused_chains import fuse_chains
from foretell.workloads.step_passes import insert_before

_PRODUCTS = ("linear", "_grouped_mm", "grouped_mm")
_IN_HALF = ("lm_head", "router")
_WRITTEN = 2  # layouts in eight bits
_ITEM = 2
BLOCKS = "blocks"  # a factor for each 32 elements
TENSORS = "tensors"  # a factor for each tensor


def fuse(workload: Workload) -> Workload:
    """The step with chains of element-wise operators as single kernels, launched as eager code launches them."""
    return fuse_chains(workload)


def scale_and_fuse(workload: Workload, factors: str) -> Workload:
    """The step with products in eight bits, and fused chains."""
    operators = list(workload.operators)
    inserted: dict[int, list[Operator]] = {}
    for place, operator in enumerate(workload.operators):
        if operator.kind not in _PRODUCTS or operator.phase is StepPhase.UPDATE:
            continue
        if workload.layers[place].rpartition(".")[2] in _IN_HALF:
            operators[place] = replace(operator, attributes=(*operator.attributes, ("fp8", 0)))
            continue
        shape = operator.inputs[0] if operator.phase is StepPhase.FORWARD else operator.output
        inserted[place] = [_build_cast(operator, shape, factors)]
    settings = {**workload.settings, "precision": "fp8"}
    cast = insert_before(replace(workload, operators=tuple(operators), settings=settings), inserted)
    return fuse_chains(replace(cast, layers=_place_casts(cast.operators, cast.layers)))


def _place_casts(operators: Sequence[Operator], layers: Sequence[str]) -> tuple[str, ...]:
    """The layers of operators: casts belong to what makes the tensors, which layouts divide as these."""
    return tuple(
        _find_maker(layer, operator.phase) if operator.kind == _CAST else layer
        for operator, layer in zip(operators, layers, strict=True)
    )


def _find_maker(layer: str, phase: StepPhase) -> str:
    """The block for what it passes from part to part, otherwise the part of it: attention or MLP."""
    role = find_tensor_role(layer)
    if role is None:
        return layer
    block = _BLOCK.match(layer)
    outside = _OUTSIDE[phase] is role and block is not None
    return block[0] if outside and block is not None else layer.rpartition(".")[0]


_CAST = "scale_to_fp8"
_BLOCK = re.compile(r".*?\.\d+")
_OUTSIDE: Mapping[StepPhase, TensorRole] = {StepPhase.FORWARD: TensorRole.COLUMNS, StepPhase.BACKWARD: TensorRole.ROWS}


def _build_cast(operator: Operator, shape: tuple[int, ...], factors: str) -> Operator:
    elements = math.prod(shape)
    passes = 2 if factors == TENSORS else 1
    return Operator(
        kind=_CAST,
        phase=operator.phase,
        inputs=(shape,),
        output=shape,
        dtype="float8_e4m3fn",
        flops=float(passes * elements),
        bytes_moved=float(elements * (passes * _ITEM + _WRITTEN)),
        kernels=passes,
    )
