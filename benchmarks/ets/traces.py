"""Training iterations recorded operator by operator (ETS), as measured steps in our own words.

What the recordings lack is put back: shapes that the recorder lost are taken from the rows around, a linear that
stands in two rows is one operator again, and backward operators without a row stand where their turn was, with no
times of their own: their work is in the gap of the row before.
"""

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from foretell.entities.workload import Attribute, MeasuredStep, Operator, Shape, StepPhase, Workload
from foretell.workloads.costs import cost
from foretell.workloads.vocabulary import spell

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
_TENSORS = {"linear": 3, "layer_norm": 3}
_REPEATED = frozenset({"linear", "matmul", "normalize"})  # have a row for each of their kernels
_PASS_THROUGH = frozenset({"new_zeros", "zero_", "reshape", "cat", "clone", "index"})  # no work in the backward phase
_BRANCHES = 3  # of a block at least, for its input to be shared by all


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
    parts = dict(iter(rows.groupby("trace_id", sort=False)))
    return [_read(trace, parts[trace.trace_id], words) for trace in chosen.itertuples()]


class _Words:
    """Kind, phase and tensors of each distinct row."""

    def __init__(self, shapes: pd.DataFrame) -> None:
        self._known = {
            number: (spell(kind) if phase < 3 else kind, int(phase), _read_tensors(str(kind), list(map(int, params))))
            for number, kind, phase, params in zip(
                shapes.index, shapes.op.astype(str), shapes.phase, shapes.params, strict=True
            )
        }

    def __getitem__(self, number: int) -> tuple[str, int, tuple[Shape, ...]]:
        return self._known[number]


def _read_tensors(kind: str, params: list[int]) -> tuple[Shape, ...]:
    """Shapes of the tensors: for a convolution input, weight and output, then padding, stride and dilation."""
    if kind == "conv2d" and len(params) >= _CONV - 1:
        n, c, h, w, k, p, q, r, s, *further, groups = params[:16]
        settings = (tuple(further[0:2]), tuple(further[2:4]), tuple(further[4:6]))
        return ((n, c, h, w), (k, c // groups, r, s), (n, k, p, q), *settings)
    if not params:
        return ()
    width = _find_width(kind, params)
    found = []
    for begin in range(0, len(params), width):
        size, *dims = params[begin : begin + width]
        shape = _cut(dims)
        if size or shape:
            found.append(shape)
    return tuple(shape for shape in found if shape)


def _find_width(kind: str, params: Sequence[int]) -> int:
    """How many slots a tensor has: all are given the same share of them."""
    if kind in _TENSORS:  # two where there is no bias
        return 10 if len(params) > 20 or params[10:11] == [4] else 15
    if kind == "cat":
        for tensors in range(2, 7):
            width = _SLOTS // tensors
            marks = params[width::width]
            if marks and all(mark in (2, 4, 8) for mark in marks) and len(params) > width * (tensors - 1):
                if all(value == 0 for value in params[5:width]):
                    return width
    return 15


def _cut(dims: Sequence[int]) -> Shape:
    last = next((place for place, value in enumerate(dims) if value == 0), len(dims))
    return tuple(dims[:last])


@dataclass(slots=True)
class _Row:
    kind: str
    inputs: tuple[Shape, ...]
    output: Shape
    seq: int
    rows: list[int]  # where its times are
    attributes: tuple[tuple[str, Attribute], ...] = ()


def _read(trace: object, rows: pd.DataFrame, words: _Words) -> Trace:
    numbers, seqs = rows.shape_id.to_numpy(), rows.seq.to_numpy()
    described = [words[number] for number in numbers]
    forward = _read_forward(described, seqs)
    backward = _read_backward(described, seqs, forward)
    update = [
        _Row(kind=kind, inputs=tensors, output=tensors[0] if tensors else (), seq=-1, rows=[place])
        for place, (kind, phase, tensors) in enumerate(described)
        if phase == 3
    ]
    first_conv = next((row.seq for row in forward if row.kind in ("conv2d", "linear")), -1)
    operators, places, views = [], [], []
    last = -1
    for phase, part in ((1, forward), (2, backward), (3, update)):
        for row in part:
            operators.append(_build(row.kind, phase, row.inputs, row.output, row.attributes, row.seq != first_conv))
            places.append(row.rows)
            views.append(max(0, row.seq - last - 1) if phase == 1 else 0)
            last = row.seq
    step = _time(trace, rows, Workload(
        name=trace.model, operators=tuple(operators), views=tuple(views), batch=int(trace.batch), settings={"optimizer": "sgd"},
        parameters=sum(math.prod(row.output) for row in update[::3]),
    ), places)  # fmt: skip
    return Trace(
        step=step, model=trace.model, family=find_family(trace.model), batch=int(trace.batch), size=int(trace.hw),
        clean=int(trace.n_neg_gap) == 0,
    )  # fmt: skip


def _read_forward(described: Sequence[tuple[str, int, tuple[Shape, ...]]], seqs: np.ndarray) -> list[_Row]:
    known_backward = {
        int(seqs[place]): tensors
        for place, (kind, phase, tensors) in enumerate(described)
        if phase == 2 and kind in ("batch_norm", "bernoulli_")
    }
    found: list[_Row] = []
    for place, (kind, phase, tensors) in enumerate(described):
        if phase != 1:
            break
        if (
            found
            and kind == found[-1].kind
            and kind in _REPEATED
            and tensors == found[-1].inputs
            and len(found[-1].rows) < 3
        ):
            found[-1].rows.append(place)
            continue
        if kind in ("batch_norm", "bernoulli_"):
            tensors = known_backward.get(int(seqs[place]), ())
        found.append(_Row(kind=kind, inputs=tensors, output=(), seq=int(seqs[place]), rows=[place]))
    before: Shape = ()
    biased = _find_biased(described)
    for place, row in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        _complete(row, before, after.inputs[0] if after and after.inputs else (), biased)
        if row.kind == "silu" and after and after.seq > row.seq + 1:
            row.attributes = (("copied", 1),)  # in place: its input is kept for the backward phase
        before = row.output
    return found


def _find_biased(described: Sequence[tuple[str, int, tuple[Shape, ...]]]) -> frozenset[Shape]:
    """Weights with a bias: vectors of their length follow in the update, two of them for a norm and one for a bias."""
    found: set[Shape] = set()
    parameters = [tensors[0] for kind, phase, tensors in described if phase == 3 and kind == "mul_" and tensors]
    for place, shape in enumerate(parameters):
        if len(shape) != 4:
            continue
        after = 0
        while place + after + 1 < len(parameters) and parameters[place + after + 1] == shape[:1]:
            after += 1
        if after % 2:
            found.add(shape)
    return frozenset(found)


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


def _read_backward(
    described: Sequence[tuple[str, int, tuple[Shape, ...]]], seqs: np.ndarray, forward: Sequence[_Row]
) -> list[_Row]:
    recorded: dict[int, list[int]] = {}
    for place, (_kind, phase, _tensors) in enumerate(described):
        if phase == 2:
            recorded.setdefault(int(seqs[place]), []).append(place)
    found: list[_Row] = []
    for place in range(len(forward) - 1, -1, -1):
        row = forward[place]
        end = forward[place + 1].seq if place + 1 < len(forward) else 1 << 30
        rows = [r for seq in range(row.seq, min(end, row.seq + 64)) for r in recorded.pop(seq, ())]
        if row.kind == "cat" and _count_branches(row) >= _BRANCHES:
            shared = _find_shared(forward[:place])
            found += [
                _Row("accumulate", (shared, shared), shared, row.seq, []) for _ in range(_count_branches(row) - 1)
            ]
        if rows:
            found.append(_Row(row.kind, row.inputs, row.output, row.seq, sorted(rows), row.attributes))
        elif row.kind in ("__add__", "__iadd__") and len(set(row.inputs)) == 1:
            found.append(_Row("accumulate", row.inputs, row.output, row.seq, []))  # of both ways that were added
        elif row.kind == "linear" and row.output[-1] == 3 * row.inputs[0][-1] and len(row.inputs[0]) > 2:
            found += _unpack(row)
            found.append(_Row(row.kind, row.inputs, row.output, row.seq, [], row.attributes))
        elif row.kind == "clone" and place and forward[place - 1].kind == "cat":  # channels shuffled, then halved
            found += [_Row(kind, (row.output,), row.output, row.seq, []) for kind in ("chunk", "view")]
        elif row.kind not in _PASS_THROUGH:
            found.append(_Row(row.kind, row.inputs, row.output, row.seq, [], row.attributes))
        if row.kind == "adaptive_avg_pool2d" and place + 3 < len(forward) and forward[place + 1].kind == "conv2d":
            found.append(_Row("accumulate", (row.inputs[0],) * 2, row.inputs[0], row.seq, []))  # squeeze and excitation
    assert not recorded, f"backward rows without a forward one: {recorded}"
    return found


def _count_branches(row: _Row) -> int:
    """How many tensors are joined; four where the recorder lost them, which it does with more than three."""
    return len(row.inputs) if len(row.inputs) > 1 else 4


def _find_shared(before: Sequence[_Row]) -> Shape:
    """What all branches of a block begin with: what the block before it ended with."""
    ends = [row.output for row in before if row.kind in ("cat", "max_pool2d") and len(row.output) == 4]
    return ends[-1] if ends else ()


def _unpack(row: _Row) -> list[_Row]:
    """Queries, keys and values made by one linear are taken out of it one by one, and their gradients put back so."""
    third = (*row.output[:-1], row.output[-1] // 3)
    taken = [_Row("index", (row.output,), third, row.seq, []) for _ in range(3)]
    return [*taken, *(_Row("accumulate", (row.output,) * 2, row.output, row.seq, []) for _ in range(2))]


@lru_cache(maxsize=None)
def _build(
    kind: str,
    phase: int,
    inputs: tuple[Shape, ...],
    output: Shape,
    attributes: tuple[tuple[str, Attribute], ...],
    input_gradient: bool,
) -> Operator:
    word = PHASES[phase]
    found = cost(kind, word, inputs, output, attributes, input_gradient=input_gradient)
    return Operator(
        kind=kind, phase=word, inputs=inputs, output=output, attributes=attributes, flops=found.flops,
        bytes_moved=found.bytes_moved, kernels=found.kernels, input_gradient=input_gradient,
    )  # fmt: skip


def _time(trace: object, rows: pd.DataFrame, workload: Workload, places: Sequence[Sequence[int]]) -> MeasuredStep:
    kernel = rows.k_dur_ns.to_numpy(float)
    steps = kernel + rows.k_gap_ns.to_numpy(float)
    start = np.cumsum(steps) - steps
    end = start + kernel + rows.k_extra_ns.to_numpy(float)
    launch = np.cumsum(rows.r_step_us.to_numpy(float)) * 1e3 - float(trace.lead_ns)
    first = np.array([place[0] if place else -1 for place in places])
    last = np.array([place[-1] if place else -1 for place in places])
    hidden = first < 0
    sums = np.concatenate([[0.0], np.cumsum(kernel)])

    def known(values: np.ndarray) -> np.ndarray:
        return np.where(hidden, np.nan, values / 1e9)

    copied = [
        operator.kind == "silu" and bool(operator.attributes) and operator.phase is StepPhase.FORWARD
        for operator in workload.operators
    ]
    kernels = (sums[last + 1] - sums[first]) * np.where(copied, 2.0, 1.0)  # the copy, as long as itself, has no row
    spans = (end[last] - start[first]) * np.where(copied, 2.0, 1.0)
    return MeasuredStep(
        workload=workload, device=str(trace.gpu), iteration_s=float(trace.iter_ns) / 1e9,
        kernel_s=known(kernels), span_s=known(spans), start_s=known(start[first]),
        launch_s=known(launch[first]),
    )  # fmt: skip
