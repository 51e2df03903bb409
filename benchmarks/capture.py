"""Steps read from code, against steps that were recorded, and what reading them costs.

Forward operators of torchvision's models are compared with recorded iterations of the same models, batches and sizes,
by kind, shapes and attributes. The recorder wrote a row for each node of the graph, which is made up for here:

- a call of several nodes stands in several equal rows: a product and its bias, a norm and its division, the copies
  before a product of broadcast matrices. Runs of equal rows are compared with runs of equal calls;
- shapes are missing for attention of several heads, copies, picked rows and long concatenations: the kind is compared;
  those of batch norms stand in their backward rows;
- some kinds have two spellings.

Operators that only one side has are counted, never forgiven; newer versions copy where older ones did not, so they have
some more.

Needs ``pip install 'foretell[huggingface]'``, ``pip install --no-deps torchvision`` and the data in ``FORETELL_DATA``.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks.timing import time_calls
from foretell.core.workload import Operator, Shape, StepPhase
from foretell.workloads.api import read_workload
from foretell.workloads.capture import capture
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.operator_costs import normalize_name
from foretell.workloads.step_options import InputSpec

PER_MODEL = 3  # recorded iterations of each model that are compared
REPEATS = 5
GIGABYTE = 1e9
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
_SLOTS = 30
_AHEAD = 12  # how far another beginning is looked for after a difference


def run() -> dict[str, float | str]:
    declare_torchvision()
    return {**compare_families(), **time_capture(), **measure_memory()}


def declare_torchvision() -> None:
    """Find torchvision where ``make test`` puts it; declare what its import asks for, if built for another PyTorch."""
    sys.path.append(str(Path(sys.prefix) / "torchvision"))
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit("torchvision is needed: pip install --no-deps torchvision==0.28.0")
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library: Any = torch.library
        _declared.append(library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            _declared[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_declared: list[Any] = []  # a declaration lasts as long as its library


# Against recorded iterations


@dataclass(slots=True)
class Comparison:
    """Rows that agree, rows in all, and what only one side has."""

    traces: int = 0
    whole: int = 0  # traces that agree from the first to the last row
    rows: int = 0
    agreeing: int = 0
    only_code: Counter[str] = field(default_factory=Counter)
    only_recorded: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Comparison") -> None:
        self.traces += other.traces
        self.whole += other.whole
        self.rows += other.rows
        self.agreeing += other.agreeing
        self.only_code += other.only_code
        self.only_recorded += other.only_recorded


def compare_families() -> dict[str, float | str]:
    families: dict[str, Comparison] = {}
    for model, found in compare_models():
        families.setdefault(model.rstrip("0123456789").split("_")[0].rstrip("0123456789"), Comparison()).add(found)
    total = Comparison()
    figures: dict[str, float | str] = {}
    for name, found in sorted(families.items()):
        total.add(found)
        figures[f"{name}: rows that agree"] = found.agreeing / found.rows
    figures["all: iterations compared"] = total.traces
    figures["all: iterations that agree in every row"] = total.whole
    figures["all: rows that agree"] = total.agreeing / total.rows
    figures["only in code, by kind"] = ", ".join(f"{kind} {count}" for kind, count in total.only_code.most_common())
    figures["only recorded, by kind"] = ", ".join(
        f"{kind} {count}" for kind, count in total.only_recorded.most_common()
    )
    return figures


def compare_models(gpu: str = "T4") -> Iterator[tuple[str, Comparison]]:
    folder = Path(os.environ.get("FORETELL_DATA", "../shared/data")) / "ets"
    traces = pd.read_parquet(folder / "traces.parquet")
    shapes = pd.read_parquet(folder / "shapes.parquet").set_index("shape_id")
    traces = traces[(traces.gpu == gpu) & (traces.dtype == "fp32") & ~traces.truncated]
    chosen = pd.concat([_choose(known) for _, known in traces.sort_values(["batch", "hw"]).groupby("model")])
    wanted = [("trace_id", "in", chosen.trace_id.tolist())]
    rows = pd.read_parquet(folder / f"ops_{gpu}_fp32.parquet", filters=wanted).join(shapes, on="shape_id")
    parts: dict[Any, pd.DataFrame] = dict(iter(rows.groupby("trace_id", sort=False)))
    for trace in chosen.itertuples():
        yield str(trace.model), _compare(str(trace.model), trace, parts[trace.trace_id])


def _choose(known: pd.DataFrame) -> pd.DataFrame:
    """From the smallest batch to the largest."""
    return known.iloc[[round(place * (len(known) - 1) / (PER_MODEL - 1)) for place in range(PER_MODEL)]]


def _compare(model: str, trace: Any, rows: pd.DataFrame) -> Comparison:
    recorded = _read_rows(rows)
    classes = next(row for row in reversed(recorded) if row.kind in ("linear", "conv2d"))
    built = build_model(model, classes.params[11] if classes.kind == "linear" else classes.params[4], int(trace.hw))
    workload = capture(built, [InputSpec(shape=(int(trace.batch), 3, int(trace.hw), int(trace.hw)))])
    calls = [each for each in workload.operators if each.phase is StepPhase.FORWARD]
    return align(recorded, [Row(normalize_name(each.kind), write_params(each), each.kernels) for each in calls])


def build_model(name: str, classes: int, size: int) -> nn.Module:
    """A torchvision model as it was recorded."""
    import torchvision

    extra: dict[str, Any] = {}
    if name.startswith("vit"):
        extra["image_size"] = size
    if name in ("googlenet", "inception_v3"):
        extra |= {"aux_logits": False, "init_weights": False}
    with HybridTensors():
        model: nn.Module = getattr(torchvision.models, name)(num_classes=classes, **extra)
    return model


@dataclass(frozen=True, slots=True)
class Row:
    """A kind and what a recorder writes of its tensors; nothing where it lost them."""

    kind: str
    params: tuple[int, ...]
    kernels: int = 1

    def agrees(self, other: "Row") -> bool:
        return self.kind == other.kind and (self.params == other.params or not self.params or not other.params)


def _read_rows(rows: pd.DataFrame) -> list[Row]:
    """Forward rows, in the order in which they ran."""
    columns = list(zip(rows.seq, rows.op, rows.phase, rows.params, strict=True))
    norms = {seq: tuple(map(int, params)) for seq, op, phase, params in columns if phase == 2 and op == "batch_norm"}
    return [
        Row(normalize_name(op), norms.get(seq, ()) if op == "batch_norm" else _cut(map(int, params)))
        for seq, op, phase, params in columns
        if phase == 1
    ]


def write_params(operator: Operator) -> tuple[int, ...]:
    """What the recorder would have written of an operator's tensors."""
    kind, inputs = operator.kind, operator.inputs
    if kind == "conv2d":
        (n, c, h, w), (k, _, r, s), (_, _, p, q) = inputs[0], inputs[1], operator.output
        attributes: dict[str, Any] = dict(operator.attributes)
        windows = (*attributes["padding"], *attributes["stride"], *attributes["dilation"], attributes["groups"])
        return (n, c, h, w, k, p, q, r, s, *windows, 4)
    if kind in ("multi_head_attention_forward", "clone", "index"):
        return ()
    if kind == "bernoulli_":
        return _write_tensors(inputs[1:])
    if kind == "cross_entropy":
        return _write_tensors((inputs[0], inputs[0]))
    if kind in ("batch_norm", "new_zeros"):
        return _write_tensors(inputs[:1])
    if len(inputs) == 1 and kind in ("__mul__", "__add__"):  # and a number
        return (*_write_tensors((*inputs, (0,)))[:15], 4)
    return _write_tensors(inputs)


def _write_tensors(shapes: Sequence[Shape]) -> tuple[int, ...]:
    width = _SLOTS // max(len(shapes), 2)
    slots: list[int] = []
    for shape in shapes:
        slots += [4, *shape, *[0] * (width - 1 - len(shape))]
    return _cut(slots)


def _cut(values: Any) -> tuple[int, ...]:
    kept = list(values)
    while kept and kept[-1] == 0:
        kept.pop()
    return tuple(kept)


def align(recorded: Sequence[Row], calls: Sequence[Row]) -> Comparison:
    """Compare runs of equal rows with runs of equal calls; after a difference, continue where both agree again."""
    left, right = _collect_runs(recorded), _collect_runs(calls)
    result = Comparison(traces=1, rows=len(recorded))
    at, to = 0, 0
    while at < len(left) or to < len(right):
        if at < len(left) and to < len(right) and _agree(left[at], right[to]):
            result.agreeing += len(left[at])
            at, to = at + 1, to + 1
            continue
        skip, over = _find_next(left[at:], right[to:])
        result.only_recorded.update(run[0].kind for run in left[at : at + skip])
        result.only_code.update(run[0].kind for run in right[to : to + over])
        at, to = at + skip, to + over
    result.whole = int(not result.only_code and not result.only_recorded)
    return result


def _collect_runs(rows: Sequence[Row]) -> list[list[Row]]:
    runs: list[list[Row]] = []
    for row in rows:
        if runs and (row.kind, row.params) == (runs[-1][0].kind, runs[-1][0].params):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _agree(rows: Sequence[Row], calls: Sequence[Row]) -> bool:
    """A call has a row at least, and no more than its kernels; those of a product with bias were up to three."""
    most = sum(max(call.kernels, 3 if call.kind == "linear" else 1) for call in calls)
    return rows[0].agrees(calls[0]) and len(calls) <= len(rows) <= most


def _find_next(left: Sequence[list[Row]], right: Sequence[list[Row]]) -> tuple[int, int]:
    """How many runs of either side to leave out, as few as possible."""
    if not left or not right:
        return len(left), len(right)
    for total in range(1, 2 * _AHEAD):
        for skip in range(total + 1):
            over = total - skip
            if skip < len(left) and over < len(right) and _agree(left[skip], right[over]):
                return skip, over
    return min(len(left), 1), min(len(right), 1)


# What it costs


def time_capture() -> dict[str, float | str]:
    """ResNet-50: the whole step read, against PyTorch's own tracing of its forward and backward phase."""
    import torchvision

    with torch.device("meta"):
        model = torchvision.models.resnet50()
    inputs = [InputSpec(shape=(32, 3, 224, 224))]
    with FakeTensorMode() as mode:
        traced = torchvision.models.resnet50()
        given = torch.empty(32, 3, 224, 224), torch.zeros(32, dtype=torch.int64)
    parameters, buffers = dict(traced.named_parameters()), dict(traced.named_buffers())

    def step(parameters: dict[str, torch.Tensor], images: torch.Tensor, targets: torch.Tensor) -> Any:
        out = functional_call(traced, {**parameters, **buffers}, (images,))
        return torch.autograd.grad(nn.functional.cross_entropy(out, targets), list(parameters.values()))

    def trace() -> Any:
        with mode:
            return make_fx(step)(parameters, *given)

    seconds = time_calls({"ours": lambda: capture(model, inputs), "make_fx": trace}, repeats=REPEATS)
    return {
        "ResNet-50: seconds to read the step": seconds["ours"],
        "ResNet-50: seconds of bare make_fx": seconds["make_fx"],
        "ResNet-50: ours by make_fx": seconds["ours"] / seconds["make_fx"],
    }


def measure_memory() -> dict[str, float | str]:
    """A model of 70 billion parameters, in a process of its own."""
    found = subprocess.run([sys.executable, "-m", "benchmarks.capture"], check=True, capture_output=True, text=True)
    read: dict[str, float | str] = json.loads(found.stdout)
    return read


def read_large() -> dict[str, float]:
    declare_torchvision()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(LLAMA))
        workload = read_workload(folder, batch=1)
    return {
        "Llama: billion parameters": workload.parameters / 1e9,
        "Llama: operators": len(workload.operators),
        "Llama: GB of the process": _read_peak() / GIGABYTE,
    }


def _read_peak() -> int:
    """Peak memory in bytes. ``getrusage`` would report that of the parent process if it was larger."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


if __name__ == "__main__":
    print(json.dumps(read_large()))
