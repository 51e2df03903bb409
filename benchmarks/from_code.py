"""Compares predictions from the code of models with predictions from recorded operators.

The default model is fitted on the traces of the training families. Each test trace is predicted twice: from its
recorded operators, and from the torchvision model of that name, read at the same batch, size and number of classes.

It needs what ``python -m benchmarks capture`` needs.
"""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.capture import build_model, declare_torchvision
from benchmarks.ets.traces import TEST_FAMILIES, TRAIN_FAMILIES, Trace, read_traces
from foretell.core.devices import get_device
from foretell.core.workload import StepPhase, Workload
from foretell.steps.replay import ReplayModel
from foretell.workloads.capture import capture
from foretell.workloads.step_options import InputSpec, StepOptions

PER_MODEL = 5
GPU = "T4"


def run() -> dict[str, float | str]:
    """The errors of both, and the time of predicting relative to reading the code."""
    declare_torchvision()
    model = ReplayModel(get_device(GPU)).fit([trace.step for trace in read_traces(GPU, TRAIN_FAMILIES)])
    chosen = _choose(read_traces(GPU, TEST_FAMILIES))
    recorded = model.predict([trace.step.workload for trace in chosen])
    predicted, shares = [], []
    for trace in chosen:
        begin = time.perf_counter()
        workload = _read(trace)
        read = time.perf_counter()
        predicted.append(model.predict([workload])[0])
        shares.append((time.perf_counter() - read) / (read - begin))
    actual = np.array([trace.step.iteration_s for trace in chosen])
    by_rows = np.abs(np.array([times.iteration_s for times in recorded]) / actual - 1)
    by_code = np.abs(np.array([times.iteration_s for times in predicted]) / actual - 1)
    families = np.array([trace.family for trace in chosen])
    figures: dict[str, float | str] = {
        "iterations": len(chosen),
        "MRE from recorded operators, %": 100 * float(by_rows.mean()),
        "MRE from code, %": 100 * float(by_code.mean()),
        "from code less from recorded, percentage points": 100 * float(by_code.mean() - by_rows.mean()),
        "predicting ÷ reading the code, median %": 100 * float(np.median(shares)),
    }
    for family in TEST_FAMILIES:
        mine = families == family
        figures[f"{family}: recorded / code, %"] = (
            f"{100 * by_rows[mine].mean():.1f} / {100 * by_code[mine].mean():.1f}"
        )
    return figures


def _choose(traces: Sequence[Trace]) -> list[Trace]:
    """Some of each model, all over its sizes."""
    models: dict[str, list[Trace]] = {}
    for trace in traces:
        models.setdefault(trace.model, []).append(trace)
    chosen = []
    for same in models.values():
        order = sorted(same, key=lambda trace: trace.batch * trace.size**2)
        places = np.linspace(0, len(order) - 1, min(PER_MODEL, len(order))).round().astype(int)
        chosen += [order[place] for place in places]
    return chosen


def _read(trace: Trace) -> Workload:
    classes = next(
        operator.inputs[0][1]
        for operator in trace.step.workload.operators
        if operator.kind == "cross_entropy" and operator.phase is StepPhase.FORWARD
    )
    model = build_model(trace.model, classes, trace.size)
    shape = (trace.batch, 3, trace.size, trace.size)
    return capture(model, [InputSpec(shape=shape)], options=StepOptions(implementation="for-loop"), name=trace.model)
