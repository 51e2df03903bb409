"""Peaks of training timm's models on an A100 with 40 GB, as the driver shows them.

Measured by the authors of GPUMemNet (https://github.com/itu-rad/GPUMemNet) with timm's ``train.py`` and its defaults:
single precision, SGD with momentum and weight decay, ``torch.backends.cudnn.benchmark``, a loader that copies ahead.
Runs that did not fit are not marked. A row is left out, with all larger batches of its model, if it is at the end of
the memory, or if the memory of the tensors alone that the authors computed themselves (FakeTensor) is above it. A model
is left out if that memory grows by another amount for each image than in its code now: other images, another version.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.gpus.results import DATA
from benchmarks.memory.models import draw, find_family, find_image_size, read_timm
from benchmarks.memory.overhead_fits import Floats, PeakCase, judge_left_out, predict_by_constant
from benchmarks.memory.results import Result, measure_errors
from benchmarks.memory.training_loops import decay_weights, load_ahead
from foretell.memory.batch_sizes import BatchTraces
from foretell.memory.overheads import CONVOLUTIONAL, OTHER, find_workspaces
from foretell.memory.usage import measure_usage

DEVICE = "A100-40"
MODELS = 300  # drawn at random: to read all takes hours
_COLUMNS = ["Batch Size", "Max GPU Memory (MiB)", "Last Numeric Value"]
_MIB = 2**20
_MOST_RATIO = 1.5
_FULL_MIB = 39_500  # of 40 GB
_KNOWN = "FakeTensor: median 43\n+ a constant: 9.1\ntrees on top: 6.1, p95 49"
_WANTED = {"median": 4.0, "p95": 15.0, "too low": 5.0}
TITLES = {
    CONVOLUTIONAL: "with convolutions",
    OTHER: "without, but for patches",
}


@cache
def list_cases() -> tuple[PeakCase, ...]:
    """All rows of runs that fitted, of models drawn at random that can be read."""
    rows = pd.read_csv(DATA / "gpumemnet" / "timm_measured_vs_faketensor.csv")
    rows["model"] = rows["Filename"].str.rsplit("_", n=1).str[0]
    groups = {str(name): own for name, own in rows.sort_values("Batch Size").groupby("model")[_COLUMNS]}
    return tuple(case for name in draw(groups, MODELS) for case in _list_cases(name, groups[name].to_numpy()))


def _list_cases(name: str, rows: Floats) -> Iterator[PeakCase]:
    size = find_image_size(name)
    traces = read_timm(name, size=size, precision="fp32") if size else None
    if traces is None or not _is_same(traces, rows):
        return
    for batch, measured, tensors in rows:
        if measured >= _FULL_MIB or tensors > measured:
            break
        trace = decay_weights(load_ahead(traces.resize(int(batch))))
        yield PeakCase(
            model=name,
            family=find_family(name),
            batch=int(batch),
            measured_bytes=measured * _MIB,
            reserved_bytes=measure_usage(trace).reserved_bytes,
            needs=find_workspaces(trace),
            tensor_bytes=tensors * _MIB,
        )


def _is_same(traces: BatchTraces, rows: Floats) -> bool:
    """Whether tensors grow with the batch as in the authors' own count."""
    small, large = rows[0], rows[-1]
    grown = [measure_usage(traces.resize(int(row[0]))).allocated_bytes / _MIB for row in (small, large)]
    ratio = (grown[1] - grown[0]) / (large[2] - small[2])
    return bool(1 / _MOST_RATIO < ratio < _MOST_RATIO)


def judge_timm() -> list[Result]:
    """Every model by overheads from models of other families."""
    cases = list_cases()
    predicted, upper = judge_left_out(cases, DEVICE)
    measured = np.array([each.measured_bytes for each in cases])
    groups = np.array([each.needs.group for each in cases])
    found = [
        Result(
            what="timm, training, fp32",
            group="other families",
            cases=len(cases),
            figures=measure_errors(predicted, measured, upper),
            known=_KNOWN,
            wanted=_WANTED,
            note=f"{_count(cases, 'model')} models of {_count(cases, 'family')} families on an {DEVICE}",
        )
    ]
    for name, title in TITLES.items():
        own = groups == name
        figures = measure_errors(predicted[own], measured[own], upper[own])
        found.append(Result(what="timm, training, fp32", group=title, cases=int(own.sum()), figures=figures))
    for what, name in (("the replay and a constant", "reserved_bytes"), ("FakeTensor and a constant", "tensor_bytes")):
        computed = np.array([getattr(each, name) for each in cases])
        figures = measure_errors(predict_by_constant(cases, computed), measured)
        found.append(Result(what=what, group="the same rows", cases=len(cases), figures=figures))
    return found


def _count(cases: Sequence[PeakCase], name: str) -> int:
    return len({getattr(each, name) for each in cases})
