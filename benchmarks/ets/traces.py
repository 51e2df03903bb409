"""Training iterations recorded operator by operator (ETS), as measured steps in our own words.

What the recordings lack is put back: shapes that the recorder lost are taken from the rows around, a linear that
stands in two rows is one operator again, and backward operators without a row stand where their turn was, with no
times of their own: their work is in the gap of the row before.
"""

import itertools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from foretell.core.workload import Attribute, MeasuredStep, Operator, Shape, StepPhase, Workload
from foretell.workloads.operator_costs import cost, normalize_name

PHASES = {1: StepPhase.FORWARD, 2: StepPhase.BACKWARD, 3: StepPhase.UPDATE}
FAMILIES = {
    "wide_resnet": "WideResNet",
    "resnet": "ResNet",
    "resnext": "ResNext",
    "mnasnet": "MnasNet",
    "alexnet": "AlexNet",
    "convnext": "ConvNext",
    "efficientnet": "EfficientNet",
    "googlenet": "GoogleNet",
    "inception": "InceptionV3",
    "regnet": "RegNet",
    "shufflenet": "ShuffleNet",
    "squeezenet": "SqueezeNet",
    "swin": "Swin",
    "vgg": "VGG",
    "vit": "ViT",
    "densenet": "DenseNet",
    "mobilenet": "MobileNet",
    "maxvit": "MaxVit",
}
TRAIN_FAMILIES = ("ResNet", "MnasNet", "AlexNet", "ConvNext", "WideResNet", "EfficientNet")
TEST_FAMILIES = ("GoogleNet", "InceptionV3", "RegNet", "ShuffleNet", "SqueezeNet", "Swin", "VGG", "ViT")

_CONV = 17  # slots of a convolution's parameters
_SLOTS = 30
_THREE = frozenset({"linear", "layer_norm"})  # tensors at most: input, weight, bias
_REPEATED = frozenset({"linear", "matmul", "normalize"})  # have a row for each of their kernels
_PASS_THROUGH = frozenset({"new_zeros", "zero_", "reshape", "cat", "clone", "index"})  # no work in the backward phase
_LOST = frozenset({"batch_norm", "bernoulli_"})  # their shapes are right in the backward phase only
_BRANCHES = 3  # of a block at least, for its input to be shared by all
_ROWS = 3  # of one operator at most
_REACH = 64  # calls of the framework that one operator may be at most

_Record: TypeAlias = Any  # a row of traces.parquet


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A measured step, and where it comes from."""

    step: MeasuredStep
    model: str
    family: str
    batch: int
    size: int
    clean: bool  # no kernels that overlap


def find_folder() -> Path:
    """The recordings."""
    root = Path(os.environ.get("FORETELL_DATA", Path(__file__).parents[3] / "shared" / "data"))
    return root / "ets"


def find_family(model: str) -> str:
    """The family a torchvision model is of; its name's first part where it is a new one."""
    known = [name for prefix, name in FAMILIES.items() if model.startswith(prefix)]
    return known[0] if known else model.split("_")[0].rstrip("0123456789")


def read_traces(gpu: str, families: Collection[str] | None = None, *, folder: Path | None = None) -> list[Trace]:
    """The protocol's traces: single precision, 8 to 256 images of 32 to 512 points, at most 3000 rows."""
    place = folder or find_folder()
    table = pd.read_parquet(place / "traces.parquet")
    table["family"] = table.model.map(find_family)
    chosen = table[
        (table.gpu == gpu)
        & (table.dtype == "fp32")
        & ~table.truncated
        & table.batch.between(8, 256)
        & table.hw.between(32, 512)
        & (table.n_ops <= 3000)
        & (table.family.isin(families) if families is not None else True)
    ]
    shapes = pd.read_parquet(place / "shapes.parquet").set_index("shape_id")
    rows = pd.read_parquet(place / f"ops_{gpu}_fp32.parquet", filters=[("trace_id", "in", chosen.trace_id.tolist())])
    words = _Words(shapes.loc[np.unique(rows.shape_id)])
    parts: dict[Any, pd.DataFrame] = dict(iter(rows.groupby("trace_id", sort=False)))
    return [_read(trace, parts[trace.trace_id], words) for trace in chosen.itertuples()]


class _Word(NamedTuple):
    kind: str
    phase: StepPhase
    tensors: tuple[Shape, ...]


class _Words:
    """Kind, phase and tensors of each distinct row."""

    def __init__(self, shapes: pd.DataFrame) -> None:
        self._known = {
            number: _describe(str(kind), PHASES[int(phase)], [int(value) for value in params])
            for number, kind, phase, params in zip(
                shapes.index, shapes.op.astype(str), shapes.phase, shapes.params, strict=True
            )
        }

    def __getitem__(self, number: int) -> _Word:
        return self._known[number]


def _describe(kind: str, phase: StepPhase, params: Sequence[int]) -> _Word:
    return _Word(kind if phase is StepPhase.UPDATE else normalize_name(kind), phase, _read_tensors(kind, params))


def _read_tensors(kind: str, params: Sequence[int]) -> tuple[Shape, ...]:
    """Shapes of the tensors: for a convolution input, weight and output, then padding, stride and dilation."""
    if kind == "conv2d" and len(params) >= _CONV - 1:
        n, c, h, w, k, p, q, r, s, *further, groups = params[:16]
        settings = (tuple(further[0:2]), tuple(further[2:4]), tuple(further[4:6]))
        return ((n, c, h, w), (k, c // groups, r, s), (n, k, p, q), *settings)
    if not params:
        return ()
    width = _find_width(kind, params)
    found = (_cut(params[begin + 1 : begin + width]) for begin in range(0, len(params), width))
    return tuple(shape for shape in found if shape)


def _find_width(kind: str, params: Sequence[int]) -> int:
    """How many slots a tensor has: all are given the same share of them."""
    if kind in _THREE:  # two where there is no bias
        return 10 if len(params) > 20 or params[10:11] == [4] else 15
    if kind == "cat":
        return next((width for count in range(2, 7) if _fits(params, width := _SLOTS // count, count)), 15)
    return 15


def _fits(params: Sequence[int], width: int, count: int) -> bool:
    """Whether so many joined tensors may lie there: each begins with the size of its elements."""
    marks = params[width::width]
    return (
        len(params) > width * (count - 1)
        and len(marks) > 0
        and all(mark in (2, 4, 8) for mark in marks)
        and not any(params[5:width])
    )


def _cut(dims: Sequence[int]) -> Shape:
    last = next((place for place, value in enumerate(dims) if value == 0), len(dims))
    return tuple(dims[:last])


@dataclass(slots=True, kw_only=True)
class _Row:
    """An operator of one phase, as far as it is known."""

    kind: str
    inputs: tuple[Shape, ...]
    output: Shape = ()
    seq: int
    rows: Sequence[int] = ()  # where its times are
    attributes: tuple[tuple[str, Attribute], ...] = ()


def _read(trace: _Record, rows: pd.DataFrame, words: _Words) -> Trace:
    described = [words[number] for number in rows.shape_id.tolist()]
    seqs = rows.seq.tolist()
    forward = _read_forward(described, seqs)
    phases = {
        StepPhase.FORWARD: forward,
        StepPhase.BACKWARD: _read_backward(described, seqs, forward),
        StepPhase.UPDATE: _read_update(described),
    }
    places = [row.rows for part in phases.values() for row in part]
    return Trace(
        step=_time(trace, rows, _build_workload(trace, phases), places),
        model=trace.model,
        family=find_family(trace.model),
        batch=int(trace.batch),
        size=int(trace.hw),
        clean=int(trace.n_neg_gap) == 0,
    )


def _build_workload(trace: _Record, phases: Mapping[StepPhase, Sequence[_Row]]) -> Workload:
    forward, update = phases[StepPhase.FORWARD], phases[StepPhase.UPDATE]
    first = next((row.seq for row in forward if row.kind in ("conv2d", "linear")), -1)
    operators = tuple(
        _build(row.kind, phase, row.inputs, row.output, row.attributes, row.seq != first)
        for phase, rows in phases.items()
        for row in rows
    )
    views = [max(0, seq - before - 1) for before, seq in itertools.pairwise([-1, *(row.seq for row in forward)])]
    return Workload(
        name=trace.model,
        operators=operators,
        views=(*views, *[0] * (len(operators) - len(views))),
        batch=int(trace.batch),
        settings={"optimizer": "sgd"},
        parameters=sum(math.prod(row.output) for row in update[::3]),  # three operators for each
    )


def _read_update(described: Sequence[_Word]) -> list[_Row]:
    return [
        _Row(kind=kind, inputs=tensors, output=tensors[0] if tensors else (), seq=-1, rows=[place])
        for place, (kind, phase, tensors) in enumerate(described)
        if phase is StepPhase.UPDATE
    ]


# Forward


def _read_forward(described: Sequence[_Word], seqs: Sequence[int]) -> list[_Row]:
    found = _merge_rows(described, seqs)
    biased = _find_biased(described)
    before: Shape = ()
    for row, after in zip(found, [*found[1:], None], strict=True):
        _complete(row, before, after.inputs[0] if after and after.inputs else (), biased)
        if row.kind == "silu" and after and after.seq > row.seq + 1:
            row.attributes = (("copied", 1),)  # in place: its input is kept for the backward phase
        before = row.output
    return found


def _merge_rows(described: Sequence[_Word], seqs: Sequence[int]) -> list[_Row]:
    """Operators by their rows; what lost its shapes is given those of its backward row."""
    known = {
        seqs[place]: word.tensors
        for place, word in enumerate(described)
        if word.phase is StepPhase.BACKWARD and word.kind in _LOST
    }
    found: list[_Row] = []
    for place, word in enumerate(itertools.takewhile(lambda word: word.phase is StepPhase.FORWARD, described)):
        if found and _repeats(word, found[-1]):
            found[-1].rows = [*found[-1].rows, place]
            continue
        inputs = known.get(seqs[place], ()) if word.kind in _LOST else word.tensors
        found.append(_Row(kind=word.kind, inputs=inputs, seq=seqs[place], rows=[place]))
    return found


def _repeats(word: _Word, row: _Row) -> bool:
    return word.kind in _REPEATED and (word.kind, word.tensors) == (row.kind, row.inputs) and len(row.rows) < _ROWS


def _find_biased(described: Sequence[_Word]) -> frozenset[Shape]:
    """Weights with a bias: vectors of their length follow in the update, two of them for a norm and one for a bias."""
    parameters = [
        tensors[0] for kind, phase, tensors in described if phase is StepPhase.UPDATE and kind == "mul_" and tensors
    ]
    return frozenset(
        shape
        for place, shape in enumerate(parameters)
        if len(shape) == 4 and _count_first(parameters[place + 1 :], shape[:1]) % 2
    )


def _count_first(shapes: Sequence[Shape], wanted: Shape) -> int:
    return next((place for place, shape in enumerate(shapes) if shape != wanted), len(shapes))


def _complete(row: _Row, before: Shape, after: Shape, biased: Collection[Shape]) -> None:
    """Fill in what was not recorded, from the rows around."""
    if row.kind == "conv2d" and len(row.inputs) == 6:
        given, weight, output, padding, stride, dilation = row.inputs
        row.inputs = (given, weight, weight[:1]) if weight in biased else (given, weight)
        row.output = output
        row.attributes = (
            ("dilation", dilation), ("groups", given[1] // weight[1]), ("padding", padding), ("stride", stride),
        )  # fmt: skip
        return
    if row.kind == "multi_head_attention_forward" and len(before) == 3:
        row.inputs = ((before[1], before[0], before[2]),)  # it works on length first
        row.output = row.inputs[0]
        return
    if not row.inputs:
        row.inputs = (after or before,) if row.kind == "cat" else (before,)
    row.output = _find_output(row, after)


def _find_output(row: _Row, after: Shape) -> Shape:
    first = row.inputs[0]
    if row.kind == "linear" and len(row.inputs) > 1:
        return (*first[:-1], row.inputs[1][0])
    if row.kind == "matmul" and len(row.inputs) > 1:
        return (*first[:-1], row.inputs[1][-1])
    if row.kind in ("max_pool2d", "avg_pool2d"):
        return after if len(after) == 4 and after[:2] == first[:2] else first
    if row.kind in ("adaptive_avg_pool2d", "mean"):
        return (*first[:2], 1, 1)
    if row.kind == "cat":
        axis = next((n for n, sizes in enumerate(zip(*row.inputs, strict=False)) if len(set(sizes)) > 1), 1)
        joined = sum(shape[axis] for shape in row.inputs if axis < len(shape))
        return (*first[:axis], joined, *first[axis + 1 :])
    if row.kind == "cross_entropy":
        return ()
    return max(row.inputs, key=lambda shape: (len(shape), math.prod(shape)))


# Backward


def _read_backward(described: Sequence[_Word], seqs: Sequence[int], forward: Sequence[_Row]) -> list[_Row]:
    recorded: dict[int, list[int]] = {}
    for place, word in enumerate(described):
        if word.phase is StepPhase.BACKWARD:
            recorded.setdefault(seqs[place], []).append(place)
    found: list[_Row] = []
    for place in reversed(range(len(forward))):
        begin = forward[place].seq
        end = min(forward[place + 1].seq if place + 1 < len(forward) else begin + _REACH, begin + _REACH)
        rows = [row for seq in range(begin, end) for row in recorded.pop(seq, ())]
        found += [*_sum_branches(forward, place), *_turn_back(forward, place, rows), *_sum_squeezed(forward, place)]
    assert not recorded, f"backward rows without a forward one: {recorded}"
    return found


def _turn_back(forward: Sequence[_Row], place: int, rows: Sequence[int]) -> list[_Row]:
    """What the backward phase does for an operator, with its rows or without any."""
    row = forward[place]
    hidden = replace(row, rows=())
    if rows:
        return [replace(row, rows=sorted(rows))]
    if row.kind in ("__add__", "__iadd__") and len(set(row.inputs)) == 1:  # the gradients of both ways that were added
        return [replace(hidden, kind="accumulate", attributes=())]
    if row.kind == "linear" and row.output[-1] == 3 * row.inputs[0][-1] and len(row.inputs[0]) > 2:
        return [*_unpack(row), hidden]
    if row.kind == "clone" and place and forward[place - 1].kind == "cat":  # channels shuffled, then halved
        return [_Row(kind=kind, inputs=(row.output,), output=row.output, seq=row.seq) for kind in ("chunk", "view")]
    return [] if row.kind in _PASS_THROUGH else [hidden]


def _accumulate(shape: Shape, seq: int) -> _Row:
    return _Row(kind="accumulate", inputs=(shape, shape), output=shape, seq=seq)


def _sum_branches(forward: Sequence[_Row], place: int) -> list[_Row]:
    """Where branches of a block are joined, their gradients meet at the block's begin."""
    row = forward[place]
    if row.kind != "cat":
        return []
    count = len(row.inputs) if len(row.inputs) > 1 else 4  # the recorder loses the tensors where there are more than 3
    return [_accumulate(_find_shared(forward[:place]), row.seq)] * (count - 1) if count >= _BRANCHES else []


def _find_shared(before: Sequence[_Row]) -> Shape:
    """What all branches of a block begin with: what the block before it ended with."""
    ends = (row.output for row in reversed(before) if row.kind in ("cat", "max_pool2d") and len(row.output) == 4)
    return next(ends, ())


def _sum_squeezed(forward: Sequence[_Row], place: int) -> list[_Row]:
    """Squeeze and excitation goes two ways from its input."""
    row = forward[place]
    squeezed = row.kind == "adaptive_avg_pool2d" and place + 3 < len(forward) and forward[place + 1].kind == "conv2d"
    return [_accumulate(row.inputs[0], row.seq)] if squeezed else []


def _unpack(row: _Row) -> list[_Row]:
    """Queries, keys and values made by one linear are taken out of it one by one, and their gradients put back so."""
    third = (*row.output[:-1], row.output[-1] // 3)
    taken = _Row(kind="index", inputs=(row.output,), output=third, seq=row.seq)
    return [*[taken] * 3, *[_accumulate(row.output, row.seq)] * 2]


# Costs and times


@cache
def _build(
    kind: str,
    phase: StepPhase,
    inputs: tuple[Shape, ...],
    output: Shape,
    attributes: tuple[tuple[str, Attribute], ...],
    input_gradient: bool,
) -> Operator:
    found = cost(kind, phase, inputs, output, attributes, input_gradient=input_gradient)
    return Operator(
        kind=kind, phase=phase, inputs=inputs, output=output, attributes=attributes, flops=found.flops,
        bytes_moved=found.bytes_moved, kernels=found.kernels, input_gradient=input_gradient,
    )  # fmt: skip


def _time(trace: _Record, rows: pd.DataFrame, workload: Workload, places: Sequence[Sequence[int]]) -> MeasuredStep:
    kernel = rows.k_dur_ns.to_numpy(float)
    steps = kernel + rows.k_gap_ns.to_numpy(float)
    start = np.cumsum(steps) - steps
    end = start + kernel + rows.k_extra_ns.to_numpy(float)
    launch = np.cumsum(rows.r_step_us.to_numpy(float)) * 1e3 - float(trace.lead_ns)
    first = np.array([place[0] if place else -1 for place in places])
    last = np.array([place[-1] if place else -1 for place in places])
    sums = np.concatenate([[0.0], np.cumsum(kernel)])
    times = np.array([2.0 if _is_copied(operator) else 1.0 for operator in workload.operators])
    kernels, spans, starts, launches = (
        np.where(first < 0, np.nan, values / 1e9)
        for values in (
            (sums[last + 1] - sums[first]) * times,
            (end[last] - start[first]) * times,
            start[first],
            launch[first],
        )
    )
    return MeasuredStep(
        workload=workload, device=str(trace.gpu), iteration_s=float(trace.iter_ns) / 1e9, kernel_s=kernels,
        span_s=spans, start_s=starts, launch_s=launches,
    )  # fmt: skip


def _is_copied(operator: Operator) -> bool:
    """Whether it copies first: that takes as long as itself, and has no row."""
    return operator.phase is StepPhase.FORWARD and bool(operator.get("copied", 0))
