"""Tensor parallelism as in Megatron-LM (Shoeybi et al., https://arxiv.org/abs/1909.08053; with a divided sequence,
Korthikanti et al., https://arxiv.org/abs/2205.05198): heads of attention, columns and then rows of products, and the
vocabulary are divided; norms and the sums between the products are not.
"""

from dataclasses import dataclass

import numpy as np

from foretell.core.errors import Mistake, SpecError
from foretell.core.memory import Integers, MemoryKind, MemoryTrace
from foretell.core.tensor_roles import TensorRole, find_tensor_role
from foretell.core.workload import StepPhase
from foretell.memory.trace_editor import TraceEditor, find_layers, find_lives, find_spans

_STATES = (MemoryKind.WEIGHTS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER, MemoryKind.CASTS)


def shard_tensors(trace: MemoryTrace, gpus: int, *, sequence: bool = False) -> MemoryTrace:
    """The step of one of several GPUs.

    Raises:
        SpecError: The heads cannot be divided, or no layer is known to be divisible.
    """
    for heads in trace.heads[:1]:
        if heads % gpus:
            expected = f"a divisor of the {heads} heads of {trace.name}"
            raise SpecError("the layout", [Mistake(place="tp", found=str(gpus), expected=expected)])
    layers = _find_divided(trace)
    if not layers.columns:
        expected = "a model with repeated layers that have linear ones of known names, such as q_proj and o_proj"
        raise SpecError("the layout", [Mistake(place="tp", found=trace.name, expected=expected)])
    editor = TraceEditor(trace)
    divided = _divide_states(trace, layers) | _divide_results(trace, layers, sequence=sequence)
    keys = _find_keys(trace, gpus)
    editor.sizes[divided] = -(-editor.sizes[divided] // gpus)
    editor.sizes[keys & divided] = trace.sizes[keys & divided] // max(1, trace.heads[-1] if trace.heads else 1)
    return editor.build(parameters=_count_parameters(trace, editor))


@dataclass(frozen=True)
class _Divided:
    columns: frozenset[str]
    rows: frozenset[str]
    vocabulary: frozenset[str]
    around: frozenset[str]  # modules between the products, whose results are divided


def _find_divided(trace: MemoryTrace) -> _Divided:
    owners = trace.owners[trace.kinds == MemoryKind.WEIGHTS]
    weighted = {layer for _, layer in (trace.owner_names[owner] for owner in owners.tolist())}
    inside = {layer for layer in weighted if any(layer.startswith(f"{each}.") for each in trace.repeated)}
    columns = frozenset(layer for layer in inside if find_tensor_role(layer) is TensorRole.COLUMNS)
    rows = frozenset(layer for layer in inside if find_tensor_role(layer) is TensorRole.ROWS)
    around = frozenset(layer.rpartition(".")[0] for layer in columns) - set(trace.repeated)
    words = frozenset(layer for layer in weighted if find_tensor_role(layer) is TensorRole.VOCABULARY)
    return _Divided(columns, rows, words, around)


def _divide_states(trace: MemoryTrace, layers: _Divided) -> Integers:
    """Which blocks are weights, gradients and states of divided layers. The bias of rows is whole."""
    whole = np.array([_is_divided(name, layer, layers) for name, layer in trace.owner_names])
    return np.asarray(np.isin(trace.kinds, _STATES) & whole[trace.owners])


def _is_divided(name: str, layer: str, layers: _Divided) -> bool:
    return layer in layers.columns or layer in layers.vocabulary or (layer in layers.rows and name != "bias")


def _divide_results(trace: MemoryTrace, layers: _Divided, *, sequence: bool) -> Integers:
    """Which other blocks are divided: what columns give, what rows take, and everything between."""
    born, _ = find_lives(trace)
    backward = np.zeros(len(trace.sizes), dtype=bool)
    for span in find_spans(trace):
        if span.phase is StepPhase.BACKWARD:
            backward |= (born >= span.start) & (born < span.end)
    weights = trace.kinds == MemoryKind.WEIGHTS
    size_of = dict(zip(trace.owners[weights].tolist(), trace.sizes[weights].tolist(), strict=True))
    sizes_in: dict[str, set[int]] = {}
    for owner, size in size_of.items():
        sizes_in.setdefault(trace.owner_names[owner][1], set()).update((size, size // 2))
    repeated = find_layers(trace) >= 0
    logits = _find_logits(trace, layers)
    divided = np.zeros(len(trace.sizes), dtype=bool)
    for block in np.flatnonzero(~np.isin(trace.kinds, (*_STATES, MemoryKind.INPUTS, MemoryKind.BUFFERS))):
        owner, size = int(trace.owners[block]), int(trace.sizes[block])
        operator, layer = trace.owner_names[owner]
        like_weight = bool(backward[block]) and size in sizes_in.get(layer, ())
        if layer in layers.columns:
            divided[block] = like_weight or (not backward[block] and operator != "to") or sequence
        elif layer in layers.rows:
            divided[block] = like_weight or (bool(backward[block]) or operator == "to") or sequence
        elif layer in layers.vocabulary or not layer:
            divided[block] = like_weight or size in logits
        elif repeated[owner]:
            divided[block] = sequence or _is_between(layer, layers)
    return divided


def _is_between(layer: str, layers: _Divided) -> bool:
    return layer in layers.around or layer.rpartition(".")[0] in layers.around


def _find_logits(trace: MemoryTrace, layers: _Divided) -> set[int]:
    """Sizes of the scores of all tokens of the vocabulary, in either precision."""
    owners = {
        place
        for place, (operator, layer) in enumerate(trace.owner_names)
        if layer in layers.vocabulary and operator == "linear"
    }
    sizes = trace.sizes[np.isin(trace.owners, list(owners)) & (trace.kinds == MemoryKind.ACTIVATIONS)]
    found = {int(size) for size in sizes if size}
    return found | {2 * size for size in found}


def _find_keys(trace: MemoryTrace, gpus: int) -> Integers:
    """Blocks of keys and values, of which several GPUs have copies if there are fewer heads than GPUs."""
    if len(trace.heads) < 2 or trace.heads[1] >= gpus:
        return np.zeros(len(trace.sizes), dtype=bool)
    named = [layer.rpartition(".")[2] in ("k_proj", "v_proj", "key", "value") for _, layer in trace.owner_names]
    return np.asarray(np.array(named)[trace.owners])


def _count_parameters(trace: MemoryTrace, editor: TraceEditor) -> int:
    weights = trace.kinds == MemoryKind.WEIGHTS
    return round(trace.parameters * int(editor.sizes[weights].sum()) / max(1, int(trace.sizes[weights].sum())))
