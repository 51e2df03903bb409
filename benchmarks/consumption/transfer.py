"""Holds back each setting: a few of its jobs with transfer from the others, against fitting from scratch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from benchmarks.consumption.comparison import METHODS, judge
from benchmarks.consumption.data import JOBS, PROFILES, build_cases, read_jobs, read_profiles
from foretell.core.workload import Floats
from foretell.distributed.consumption import Case, Consumed, MeasuredJob
from foretell.distributed.driple import DripleModel
from foretell.distributed.timeline_model import TimelineModel

COUNTS = (0, 3, 5, 8, 12, 20)  # jobs of the held-back setting to fit to
SEEDS = 10
HELD_FAMILIES = 3
TRANSFERABLE = ("timeline", "driple")


class Transferable(Protocol):
    """A model with transfer."""

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self: ...
    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> "TimelineModel | DripleModel": ...
    def predict(self, cases: Sequence[Case]) -> list[Consumed]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """After so many jobs: the mean error over all metrics, in per cent, and the seconds of fitting."""

    method: str
    how: str  # scratch or transfer
    jobs: int
    error: float
    spread: float  # over settings and draws
    fit_s: float
    silent: int = 0  # draws without a prediction: their few jobs have no cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What fitting from scratch needs for the error of a few transferred jobs."""

    jobs: int
    error: float
    scratch_jobs: float
    scratch_times: float  # the time to fit, in multiples

    @property
    def times(self) -> float:
        """How many times fewer jobs."""
        return self.scratch_jobs / self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """A setting that is held back: jobs of others, jobs of it to fit to, and families of it to predict."""

    source: list[int]
    pool: list[int]
    asked: list[int]


def compare_transfer(
    methods: Sequence[str], *, jobs_path: Path = JOBS, profiles_path: Path = PROFILES, seeds: int = SEEDS
) -> tuple[list[Point], dict[str, Any]]:
    """The errors of each method from scratch and with transfer, and what transfer saves.

    Raises:
        ValueError: A method has no transfer.
    """
    unknown = [name for name in methods if name not in TRANSFERABLE]
    if unknown:
        raise ValueError(f"no transfer with {', '.join(unknown)}; methods with transfer: {', '.join(TRANSFERABLE)}")
    jobs = read_jobs(jobs_path)
    cases = build_cases(read_profiles(profiles_path), jobs, without="")
    points: list[Point] = []
    for name in methods:
        points += _measure(name, METHODS[name], cases, jobs, seeds)
    return points, {"savings": {name: find_savings([p for p in points if p.method == name]) for name in methods}}


def _measure(
    name: str, build: Callable[[], Any], cases: Sequence[Case], jobs: Sequence[MeasuredJob], seeds: int
) -> list[Point]:
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for draw in _draw(jobs, seeds):
        source = build().fit([cases[n] for n in draw.source], [jobs[n] for n in draw.source])
        for count in COUNTS:
            if count > len(draw.pool):
                continue
            few = draw.pool[:count]
            for how, learn in (("scratch", build().fit), ("transfer", source.transfer)):
                if not few and how == "scratch":
                    continue
                begin = time.perf_counter()
                model = learn([cases[n] for n in few], [jobs[n] for n in few]) if few else source
                took = time.perf_counter() - begin
                error = _judge(model.predict([cases[n] for n in draw.asked]), [jobs[n] for n in draw.asked])
                found.setdefault((how, count), []).append((error, took))
    return [
        Point(
            method=name,
            how=how,
            jobs=count,
            error=float(np.nanmean([error for error, _ in pairs])),
            spread=float(np.nanstd([error for error, _ in pairs])),
            fit_s=float(np.median([took for _, took in pairs])),
            silent=int(np.isnan([error for error, _ in pairs]).sum()),
        )
        for (how, count), pairs in sorted(found.items())
    ]


def _draw(jobs: Sequence[MeasuredJob], seeds: int) -> list[_Draw]:
    draws = []
    families = sorted({job.family for job in jobs})
    for place, setting in enumerate(dict.fromkeys(job.setting for job in jobs)):
        for seed in range(seeds):
            random = np.random.default_rng(100 * place + seed)
            held = set(random.permutation(families)[:HELD_FAMILIES].tolist())
            here = [n for n, job in enumerate(jobs) if job.setting == setting]
            draws.append(
                _Draw(
                    source=[n for n, job in enumerate(jobs) if job.setting != setting and job.family not in held],
                    pool=random.permutation([n for n in here if jobs[n].family not in held]).tolist(),
                    asked=[n for n in here if jobs[n].family in held],
                )
            )
    return draws


def _judge(predicted: Sequence[Consumed], jobs: Sequence[MeasuredJob]) -> float:
    """The mean error over all metrics; NaN without predictions."""
    errors = [figure.error for figure in judge("", predicted, jobs) if figure.resource != "iteration"]
    return float(np.mean(errors)) if errors else float("nan")


def find_savings(points: Sequence[Point]) -> list[Saving]:
    """How many jobs, and how much time, fitting from scratch needs for the errors of transfer.

    Errors are interpolated between the counts. Errors outside the range of fitting from scratch are left out.
    """
    scratch = sorted((point for point in points if point.how == "scratch"), key=lambda point: point.jobs)
    errors = np.minimum.accumulate([point.error for point in scratch])
    return [
        Saving(
            jobs=point.jobs,
            error=point.error,
            scratch_jobs=_interpolate(point.error, errors, [each.jobs for each in scratch]),
            scratch_times=_interpolate(point.error, errors, [each.fit_s for each in scratch]) / point.fit_s,
        )
        for point in points
        if point.how == "transfer" and point.jobs and errors[-1] <= point.error <= errors[0]
    ]


def _interpolate(error: float, errors: Floats, values: Sequence[float]) -> float:
    return float(np.interp(-error, -errors, values))


def record_transfer(points: Sequence[Point], about: dict[str, Any]) -> dict[str, Any]:
    """As JSON."""
    savings = {
        name: [{**asdict(each), "times": each.times} for each in saved] for name, saved in about["savings"].items()
    }
    return {**about, "savings": savings, "points": [asdict(point) for point in points]}
