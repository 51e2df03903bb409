"""Compares methods on the same jobs: fitted to all families but one, tested on that one, for each family."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.consumption.data import JOBS, PROFILES, Profiled, build_cases, read_jobs, read_profiles, read_rows
from foretell.core.observation import Metric, Resource
from foretell.core.workload import Floats
from foretell.distributed._base import TARGETS, ConsumptionModel, Target, read_targets
from foretell.distributed.consumption import Case, Consumed, MeasuredJob
from foretell.distributed.consumption_baselines import BandwidthModel, TotalsModel
from foretell.distributed.consumption_predictor import learn_consumption_model
from foretell.distributed.driple import DripleModel
from foretell.distributed.timeline_model import TimelineModel
from foretell.runtimes.metrics import nrmse

METHODS: dict[str, Callable[[], ConsumptionModel]] = {
    "timeline": TimelineModel,
    "driple": DripleModel,
    "totals": TotalsModel,
    "bandwidth": BandwidthModel,
}
LEVEL = 0.9
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The errors of a method on one metric of one resource, in per cent."""

    method: str
    resource: str
    metric: str
    jobs: int
    error: float  # mean of |predicted - measured| / measured
    spread: float  # standard deviation of that over families
    median: float
    nrmse: float  # in per cent of the mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A family that is held back, and the indices of the other jobs and of its own."""

    family: str
    cases: Sequence[Case]  # of all jobs
    inside: Sequence[int]
    held: Sequence[int]


def build_folds(jobs: Sequence[MeasuredJob], profiles: Sequence[Profiled]) -> list[Fold]:
    """One fold for each family; operator times are predicted without it too."""
    folds = []
    for family in sorted({job.family for job in jobs}):
        _log.info("%s: fitting the core's times to other families", family)
        folds.append(
            Fold(
                family=family,
                cases=build_cases(profiles, jobs, without=family),
                inside=[n for n, job in enumerate(jobs) if job.family != family],
                held=[n for n, job in enumerate(jobs) if job.family == family],
            )
        )
    return folds


def compare(
    methods: Sequence[str], *, jobs_path: Path = JOBS, profiles_path: Path = PROFILES, epochs: int | None = None
) -> tuple[list[Figure], dict[str, Any]]:
    """Figures of each method, and facts about the comparison; ``epochs`` are for driple.

    Raises:
        ValueError: A method is unknown.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise ValueError(f"no method named {', '.join(unknown)}; known: {', '.join(METHODS)}")
    jobs = read_jobs(jobs_path)
    folds = build_folds(jobs, read_profiles(profiles_path))
    figures: list[Figure] = []
    about: dict[str, Any] = {**_describe(jobs), "noise": measure_noise(jobs_path), "fit_s": {}}
    for name in methods:
        begin = time.perf_counter()
        build = partial(DripleModel, epochs=epochs) if name == "driple" and epochs else METHODS[name]
        predicted = _predict(build, folds, jobs)
        about["fit_s"][name] = round((time.perf_counter() - begin) / len(folds), 2)
        figures += judge(name, predicted, jobs)
    if "timeline" in methods:
        about["bounds"] = _judge_bounds(folds, jobs)
    return figures, about


def _predict(
    build: Callable[[], ConsumptionModel], folds: Sequence[Fold], jobs: Sequence[MeasuredJob]
) -> list[Consumed]:
    predicted: dict[int, Consumed] = {}
    for fold in folds:
        model = build().fit([fold.cases[n] for n in fold.inside], [jobs[n] for n in fold.inside])
        predicted |= dict(zip(fold.held, model.predict([fold.cases[n] for n in fold.held]), strict=True))
    return [predicted[n] for n in range(len(jobs))]


def judge(method: str, predicted: Sequence[Consumed], jobs: Sequence[MeasuredJob]) -> list[Figure]:
    """Figures of the iteration and of each metric that was measured."""
    actual, values = _tabulate(predicted, jobs)
    families = np.array([job.family for job in jobs])
    figures = []
    for column, (resource, metric) in enumerate((("iteration", "s"), *TARGETS)):
        known = np.isfinite(actual[:, column]) & np.isfinite(values[:, column])
        if not known.any():
            continue
        a, p = actual[known, column], values[known, column]
        errors = 100 * np.abs(p - a) / a
        each = [float(errors[families[known] == family].mean()) for family in sorted(set(families[known]))]
        figures.append(
            Figure(
                method=method,
                resource=str(resource),
                metric=str(metric),
                jobs=int(known.sum()),
                error=float(errors.mean()),
                spread=float(np.std(each)),
                median=float(np.median(errors)),
                nrmse=100 * nrmse(a, p),
            )
        )
    return figures


def _tabulate(predicted: Sequence[Consumed], jobs: Sequence[MeasuredJob]) -> tuple[Floats, Floats]:
    actual = np.column_stack([[job.iteration_s for job in jobs], read_targets(jobs)])
    rows = [[each.iteration_s, *(each.metrics.get(target, np.nan) for target in TARGETS)] for each in predicted]
    return actual, np.array(rows)


def _describe(jobs: Sequence[MeasuredJob]) -> dict[str, Any]:
    settings = {job.setting for job in jobs}
    return {
        "jobs": len(jobs),
        "settings": len(settings),
        "families": {family: sum(job.family == family for job in jobs) for family in sorted({j.family for j in jobs})},
    }


def measure_noise(path: Path = JOBS) -> dict[str, float]:
    """The median difference between two undisturbed measurements of a job, in per cent."""
    times: dict[tuple[int, int], list[Any]] = {}
    for row in read_rows(path):
        if not row.disturbed:
            times.setdefault((row.number, row.network), []).append(row)
    pairs = [rows[:2] for rows in times.values() if len(rows) > 1]
    noise: dict[str, float] = {"pairs": float(len(pairs))}
    if pairs:
        noise["iteration"] = float(np.median([_differ(a.iteration_s, b.iteration_s) for a, b in pairs]))
        noise["used"] = float(np.median([_differ(a.used_s, b.used_s) for a, b in pairs]))
    for resource, metric in TARGETS:
        both = [
            _differ(getattr(a.cycles[resource], metric), getattr(b.cycles[resource], metric))
            for a, b in pairs
            if resource in a.cycles and resource in b.cycles
        ]
        if both:
            noise[f"{resource.value} {metric.value}"] = float(np.median(both))
    return noise


def _differ(one: float, other: float) -> float:
    return 100 * abs(one - other) / ((one + other) / 2)


def _judge_bounds(folds: Sequence[Fold], jobs: Sequence[MeasuredJob]) -> dict[str, float]:
    """The share of measured values inside 90 % intervals fitted to other families, and their mean width."""
    inside, widths = [], []
    for fold in folds:
        held_back = {other.family: [other.cases[n] for n in fold.inside] for other in folds if other is not fold}
        some = [fold.cases[n] for n in fold.inside], [jobs[n] for n in fold.inside]
        model = learn_consumption_model(*some, held_back=held_back)
        for n in fold.held:
            case = fold.cases[n]
            prediction = model.predict(case.workload, case.setting, case.operator_s, level=LEVEL)
            for resource, cycle in jobs[n].cycles.items():
                if resource not in prediction.cycles:
                    continue
                for metric in Metric:
                    estimate = getattr(prediction.cycles[resource], metric)
                    actual = getattr(cycle, metric)
                    inside.append(estimate.low <= actual <= estimate.high)
                    widths.append((estimate.high - estimate.low) / estimate.value)
    return {"level": 100 * LEVEL, "inside": 100 * float(np.mean(inside)), "width": 100 * float(np.mean(widths))}


def summarise(figures: Sequence[Figure]) -> dict[str, dict[str, float]]:
    """The mean over metrics of each resource, by method."""
    means: dict[str, dict[str, float]] = {}
    for method in dict.fromkeys(figure.method for figure in figures):
        means[method] = {
            resource.value: float(np.mean(errors))
            for resource in Resource
            if (errors := [f.error for f in figures if f.method == method and f.resource == resource.value])
        }
    return means


def record(figures: Sequence[Figure], about: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON."""
    return {**about, "means": summarise(figures), "figures": [asdict(figure) for figure in figures]}


__all__ = ["METHODS", "Figure", "Fold", "Target", "build_folds", "compare", "judge", "measure_noise", "record"]
