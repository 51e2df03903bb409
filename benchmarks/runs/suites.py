"""The sets by name, and a set from its cases to its record."""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.runs import c3o, harp, lotaru, mlperf, scaleout, sia, sizey, stampede2
from benchmarks.runs.cases import Case, Figure, Plan, Result, Suite, find_folder
from benchmarks.runs.metrics import coverage, judge, mean_width, median_width
from benchmarks.runs.runner import try_case

SUITES = {module.SUITE.name: module.SUITE for module in (harp, c3o, scaleout, lotaru, stampede2, sizey, mlperf, sia)}
_PROGRESS_LINES = 10  # for each set


def run_suite(suite: Suite, plan: Plan, *, jobs: int) -> dict[str, Any]:
    """All cases of a set, predicted and evaluated.

    Raises:
        FileNotFoundError: if its measurements are not there.
    """
    folder = find_folder(suite.folder)
    started = time.perf_counter()
    results = answer_all(suite, list(suite.cases(folder, plan)), jobs=jobs)
    answered = [result for result in results if result.error is None]
    if not answered:
        raise ValueError(f"{suite.name}: no case could be answered; the first said: {results[0].error}")
    rows = pd.concat([result.rows for result in answered])
    judged = rows[rows["quantity"] == suite.quantity]
    return {
        "set": suite.name,
        "about": suite.about,
        "cases": len(results),
        "repeats": {part: int(count) for part, count in _count_repeats(results).items()},
        "failed": [f"{result.part}: {result.error}" for result in results if result.error is not None],
        "figures": [_record_figure(figure) for figure in suite.figures(rows, folder)],
        "intervals": {
            "rows": len(judged),
            "coverage": coverage(judged),
            "mean_width": mean_width(judged),
            "median_width": median_width(judged),
        },
        "protocols": {name: judge(group) for name, group in judged.groupby(_protocol(judged), sort=False)},
        "build": _record_builds(answered),
        "seconds": time.perf_counter() - started,
    }


def answer_all(suite: Suite, cases: Sequence[Case], *, jobs: int) -> list[Result]:
    """An answer for each case, in their order."""
    results: dict[int, Result] = {}
    for number, result in _answers(suite.answer, cases, jobs):
        results[number] = result
        if len(results) * _PROGRESS_LINES // len(cases) > (len(results) - 1) * _PROGRESS_LINES // len(cases):
            print(f"{suite.name}: {len(results)} of {len(cases)} cases", file=sys.stderr, flush=True)
    return [results[number] for number in range(len(cases))]


def _answers(answer: Callable[[Case], Result], cases: Sequence[Case], jobs: int) -> Iterator[tuple[int, Result]]:
    if jobs == 1:
        yield from ((number, try_case(answer, case)) for number, case in enumerate(cases))
        return
    largest_first = sorted(range(len(cases)), key=lambda number: -len(cases[number].train) - len(cases[number].test))
    # Not forked: threads of libraries that compute do not live through it.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        numbers = {pool.submit(try_case, answer, cases[number]): number for number in largest_first}
        for future in as_completed(numbers):
            yield numbers[future], future.result()


def _count_repeats(results: Sequence[Result]) -> "pd.Series[int]":
    figures = pd.DataFrame({"part": [result.part for result in results], "seed": [result.seed for result in results]})
    return figures.groupby(_protocol(figures), sort=False)["seed"].nunique()


def _protocol(rows: pd.DataFrame) -> "pd.Series[str]":
    return rows["part"].str.partition("/")[0]


def _record_figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "ours": figure.ours if np.isfinite(figure.ours) else None,  # no case of it was answered
        "spread": figure.spread,
        "known": figure.known,
        "known_by": figure.known_by,
        "ahead": figure.ahead,
        "goal": figure.goal,
        "reached": figure.reached,
        "unit": figure.unit,
    }


def _record_builds(results: Sequence[Result]) -> dict[str, float]:
    seconds = [second for result in results for second in result.build_s]
    return {
        "count": len(seconds),
        "median_s": float(np.median(seconds)),
        "most_s": max(seconds),
        "median_runs": float(np.median([result.trained_on for result in results])),
    }


def record_all(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The intervals over all sets: each prediction counting the same, and each set."""
    intervals = pd.DataFrame([record["intervals"] for record in records])
    figures = intervals[["coverage", "mean_width", "median_width"]]
    weighted = figures.mul(intervals["rows"], axis=0).sum() / intervals["rows"].sum()
    return {
        "rows": int(intervals["rows"].sum()),
        "coverage_of_rows": float(weighted["coverage"]),
        "coverage_of_sets": float(figures["coverage"].mean()),
        "least_coverage": float(figures["coverage"].min()),
        "mean_width_of_sets": float(figures["mean_width"].mean()),
        "median_width_of_sets": float(figures["median_width"].mean()),
    }
