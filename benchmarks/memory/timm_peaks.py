"""Peaks of training timm's models on an A100 with 40 GB, as the driver shows them.

Measured by the authors of GPUMemNet (https://github.com/itu-rad/GPUMemNet) with timm's ``train.py`` and its defaults.
Runs that did not fit are not marked. A row is left out, with all larger batches of its model, if it is at the end of
the memory, or if a memory of the tensors alone that its authors computed (``FakeTensor``) is above it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.gpus.results import DATA
from benchmarks.memory.models import find_family, find_image_size, read_timm
from benchmarks.memory.results import Result, measure_errors
from foretell.memory.batch_sizes import BatchTraces
from foretell.memory.step_events import repeat_steps

MIB = 2**20
_FULL_MIB = 39_500  # of 40 GB
_KNOWN = "FakeTensor 43 / +constant 9.1; trees on top 6.1 / p95 49"
_FOLDS = 10
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakLabel:
    """A measured peak of a model that is read from its code."""

    model: str
    family: str
    batch: int
    measured_bytes: float
    traces: BatchTraces = field(repr=False)


@cache
def list_labels() -> tuple[PeakLabel, ...]:
    """All rows of runs that fitted, whose model can be read."""
    return tuple(_list_labels())


def _list_labels() -> Iterator[PeakLabel]:
    rows = pd.read_csv(DATA / "gpumemnet" / "timm_measured_vs_faketensor.csv")
    rows["model"] = rows["Filename"].str.rsplit("_", n=1).str[0]
    for model, own in rows.sort_values("Batch Size").groupby("model"):
        size = find_image_size(str(model))
        traces = read_timm(str(model), size=size, precision="fp32") if size else None
        if traces is None:
            continue
        for batch, measured, tensors in own[["Batch Size", "Max GPU Memory (MiB)", "Last Numeric Value"]].to_numpy():
            if measured >= _FULL_MIB or tensors > measured:
                break
            yield PeakLabel(
                model=str(model),
                family=find_family(str(model)),
                batch=int(batch),
                measured_bytes=measured * MIB,
                traces=traces,
            )


def judge_timm() -> list[Result]:
    """Every model from models of other families."""
    labels = list_labels()
    live = np.array([_measure_live(label) for label in labels])
    measured = np.array([label.measured_bytes for label in labels])
    predicted = np.empty(len(labels))
    for held in split_families([label.family for label in labels]):
        predicted[held] = live[held] + np.median((measured - live)[~held])
    figures = measure_errors(predicted, measured)
    return [
        Result(what="timm training, fp32", group="other families", cases=len(labels), figures=figures, known=_KNOWN)
    ]


def _measure_live(label: PeakLabel) -> float:
    trace = label.traces.resize(label.batch)
    events = repeat_steps(trace, 2)
    sizes = trace.sizes[events.blocks]
    there = sizes[events.find_initial()].sum()
    return float(there + np.cumsum(np.sign(events.events) * sizes[np.abs(events.events) - 1]).max())


def split_families(families: Sequence[str]) -> Iterator[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Which rows are held out together: whole families, in some folds of about equal size."""
    names, counts = np.unique(families, return_counts=True)
    random = np.random.default_rng(_SEED)
    order = sorted(random.permutation(len(names)), key=lambda place: -counts[place])
    folds: list[list[str]] = [[] for _ in range(_FOLDS)]
    sizes = np.zeros(_FOLDS)
    for place in order:
        smallest = int(sizes.argmin())
        folds[smallest].append(str(names[place]))
        sizes[smallest] += counts[place]
    for fold in folds:
        yield np.isin(families, fold)
