"""A case through Foretell as its users call it: import, build, predict."""

import contextlib
import functools
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import foretell
from benchmarks.runs.cases import MEMORY, TIME, Case, Result

LEVEL = 0.9
_NUMBERS = itertools.count()


def answer_case(case: Case) -> Result:
    """Learn from a case's training runs and predict its others."""
    check_apart(case)
    app = name_app(case)
    build_s = build_model(app, case.train, case)
    rows = ask(app, case.test, case)
    return Result(part=case.part, seed=case.seed, rows=rows, build_s=(build_s,), trained_on=len(case.train))


def try_case(answer: Callable[[Case], Result], case: Case) -> Result:
    """The answer, or word of why there is none: one case that fails does not cost the others of a long run."""
    try:
        return answer(case)
    except Exception as exc:
        return Result(part=case.part, seed=case.seed, rows=pd.DataFrame(), error=f"{type(exc).__name__}: {exc}")


def check_apart(case: Case) -> None:
    """No row to predict is among those to learn from."""
    assert case.train.index.is_unique, case.part
    assert case.test.index.is_unique, case.part
    assert case.train.index.intersection(case.test.index).empty, case.part


def name_app(case: Case) -> str:
    """A name nobody else has in this process's store."""
    return f"{case.part}-{case.seed}-{next(_NUMBERS)}".replace("/", ".").replace(" ", "_")


def build_model(app: str, train: pd.DataFrame, case: Case) -> float:
    """Store the runs and build a model of them; the seconds that building took."""
    imported = foretell.import_runs(
        train.drop(columns=list(case.labels)), app=app, columns=case.columns, store=_store()
    )
    assert not imported.skipped, imported.skipped
    started = time.perf_counter()
    foretell.build(app, store=_store())
    return time.perf_counter() - started


def ask(app: str, test: pd.DataFrame, case: Case) -> pd.DataFrame:
    """A row for each prediction of the time, and of the memory where the case has it."""
    columns = case.columns
    hidden = [name for name in (columns.elapsed, columns.memory, *case.labels) if name is not None]
    predictions = foretell.predict(app, test.drop(columns=hidden), store=_store(), level=LEVEL)
    shared = {"part": case.part, "seed": case.seed, **{name: test[name].to_numpy() for name in case.labels}}
    times = {
        **shared,
        "quantity": TIME,
        "actual": test[columns.elapsed].to_numpy(dtype=float) * columns.elapsed_unit_s,
        **_bounds([prediction.elapsed_s for prediction in predictions]),
        "request": [prediction.request.walltime_s for prediction in predictions],
    }
    if columns.memory is None:
        return pd.DataFrame(times, index=test.index)
    peaks = {
        **shared,
        "quantity": MEMORY,
        "actual": test[columns.memory].to_numpy(dtype=float) * columns.memory_unit_bytes,
        **_bounds([prediction.peak_memory_bytes for prediction in predictions]),
        "request": [prediction.request.memory_bytes for prediction in predictions],
        "retries": [tuple(getattr(prediction.request, "retries_memory", ())) for prediction in predictions],
    }
    return pd.concat([pd.DataFrame(times, index=test.index), pd.DataFrame(peaks, index=test.index)])


def _bounds(estimates: Sequence[Any]) -> dict[str, list[float]]:
    return {name: [getattr(estimate, name) for estimate in estimates] for name in ("value", "low", "high")}


@functools.cache
def _store() -> Any:
    """One store for each process: opening one takes longer than a small build."""
    folder = _STACK.enter_context(tempfile.TemporaryDirectory(prefix="foretell-benchmark-"))
    return _STACK.enter_context(foretell.open_store(Path(folder) / "store.db"))


_STACK = contextlib.ExitStack()
