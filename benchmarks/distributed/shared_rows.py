"""Measured steps of several GPUs, and their predictions."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from benchmarks.gpus.results import Result, judge
from foretell.core.errors import ForetellError
from foretell.core.layouts import Layout
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.parallel_predictor import ParallelPredictor
from foretell.distributed.parallel_results import ParallelStep
from foretell.steps.step_predictor import StepPredictor, find_step_predictor

LEVEL = 0.9
_EVERY = 50  # rows between two lines about the progress


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRow:
    """A measured step. ``read`` gives one batch of the whole model; rows of equal ``workload`` have the same one."""

    source: str
    group: str  # the device, the system or another part of the source
    model: str
    workload: str
    layout: Layout
    topology: Topology
    accumulation: int  # batches of each copy of the model
    seconds: float
    read: Callable[[], Workload] = field(repr=False, compare=False)
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)  # of the measurement: its release


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRow:
    """A measured step with its prediction."""

    row: SharedRow
    step: ParallelStep

    @property
    def log_error(self) -> float:
        """Log of measured by predicted."""
        return float(np.log(self.row.seconds / self.step.step.value))


def predict_rows(
    rows: Sequence[SharedRow], *, find_predictor: Callable[[Topology], StepPredictor] | None = None
) -> list[PredictedRow]:
    """The rows that can be predicted, in their order; why others cannot is printed."""
    chosen = find_predictor or find_shipped
    by_workload: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        by_workload[row.workload].append(place)
    found: dict[int, PredictedRow] = {}
    refused: dict[str, list[SharedRow]] = defaultdict(list)
    for name, places in by_workload.items():
        _report(len(found), len(places), len(rows), name)
        workload = rows[places[0]].read()
        predictors: dict[Topology, ParallelPredictor] = {}  # which know what one GPU does of layouts like each other
        for place in places:
            topology = rows[place].topology
            try:
                if topology not in predictors:
                    predictors[topology] = ParallelPredictor(chosen(topology), topology)
                found[place] = _predict(rows[place], workload, predictors[topology])
            except ForetellError as exc:
                refused[str(exc)].append(rows[place])
    for reason, some in refused.items():
        print(f"{len(some)} rows, {some[0].model} by {some[0].layout} first: {reason}", file=sys.stderr)
    return [found[place] for place in sorted(found)]


def _predict(row: SharedRow, workload: Workload, predictor: ParallelPredictor) -> PredictedRow:
    step = predictor.predict(workload, [row.layout], accumulation=row.accumulation, level=LEVEL)[0]
    return PredictedRow(row=row, step=step)


def _report(done: int, following: int, rows: int, name: str) -> None:
    if done // _EVERY != (done + following) // _EVERY or not done:
        print(f"  {done} of {rows} rows, {name}", file=sys.stderr, flush=True)


def find_shipped(topology: Topology) -> StepPredictor:
    """The predictor that ships for the device."""
    return _find_shipped(topology.device.name)


@cache
def _find_shipped(name: str) -> StepPredictor:
    return find_step_predictor(name)


def judge_predicted(
    what: str,
    group: str,
    rows: Iterable[PredictedRow],
    *,
    most: float | None = None,
    by: str = "mean",
    factors: Mapping[int, float] | None = None,
    widths: Sequence[tuple[float, float]] | None = None,
    note: str = "",
) -> list[Result]:
    """A row of the table for these predictions, times a factor for each place if there are corrections.

    ``widths`` are the lower and upper bounds of corrected predictions; without them, those of the predictions are
    multiplied as well.
    """
    rows = list(rows)
    if not rows:
        return []
    scale = np.array([(factors or {}).get(place, 1.0) for place in range(len(rows))])
    predicted = scale * np.array([each.step.step.value for each in rows])
    measured = np.array([each.row.seconds for each in rows])
    low = scale * np.array([each.step.step.low for each in rows])
    high = scale * np.array([each.step.step.high for each in rows])
    if widths is not None:
        low, high = (np.array(side) for side in zip(*widths, strict=True))
    ninetieth = np.quantile(100 * np.abs(predicted / measured - 1), 0.9)
    shift = 100 * (np.exp(np.mean(np.log(predicted / measured))) - 1)
    text = f"p90 {ninetieth:.1f}, shift {shift:+.1f}"
    return [
        judge(
            what,
            group,
            predicted.tolist(),
            measured.tolist(),
            most=most,
            by=by,
            inside=float(100 * np.mean((low <= measured) & (measured <= high))),
            width=float(100 * np.mean((high - low) / predicted)),
            note=f"{text}; {note}" if note else text,
        )
    ]
