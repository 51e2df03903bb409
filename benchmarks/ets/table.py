"""Errors of methods on traces they were not fitted on, as figures and as a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

_WIDTH = 160  # without a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The predicted and the measured time of a trace."""

    family: str
    clean: bool
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of predictions. Relative ones are in percent of the measured time; too long is positive."""

    traces: int
    mre: float
    rmse_ms: float
    p10: float
    median: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One method in one setting."""

    method: str
    seen: str = "zero-shot"  # what the method knows of the predicted variants
    all_traces: Score
    clean_traces: Score | None
    families: Mapping[str, float] = field(default_factory=dict)  # MRE
    draws_spread: float | None = None  # standard deviation of the MRE over several draws of profiles
    fit_s: float | None = None
    predict_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A figure reported elsewhere."""

    method: str
    unseen: str = ""
    clean: str = ""
    random: str = ""


REFERENCES = (
    Reference(method="published: ETS, its own filter and label, RandWire and NLP models included", unseen="5.9"),
    Reference(method="published: ETS's own result file, T4", random="7.3"),
    Reference(method="published: ETS's stored predictions on 89 unseen configurations, no update", unseen="17.1"),
    Reference(
        method="earlier version: boosting of operators with neighbours", unseen="17.5", clean="13.5", random="7.2"
    ),
    Reference(method="earlier version: two timelines, zero-shot", unseen="14.8", clean="10.1", random="4.8"),
    Reference(method="earlier version: two timelines, + 1 / 2 profiles", unseen="7.7 / 6.4", clean="7.3 / 5.6"),
    Reference(method="target: zero-shot / 1 / 2 profiles", unseen="8 / 5 / 4", clean="6 / 4 / 3", random="3"),
)


def score(results: Iterable[Result]) -> Score | None:
    """The errors of results; None if there are none."""
    kept = list(results)
    if not kept:
        return None
    predicted, measured = _columns(kept)
    relative = 100 * (predicted - measured) / measured
    p10, median, p90 = np.percentile(relative, [10, 50, 90])
    return Score(
        traces=len(kept),
        mre=float(np.mean(np.abs(relative))),
        rmse_ms=float(1e3 * np.sqrt(np.mean((predicted - measured) ** 2))),
        p10=float(p10),
        median=float(median),
        p90=float(p90),
    )


def build_row(
    method: str,
    draws: Sequence[Sequence[Result]],
    *,
    seen: str = "zero-shot",
    fit_s: float | None = None,
    predict_s: float | None = None,
) -> Row:
    """A row of one or more draws; figures are means over the draws.

    Raises:
        ValueError: There are no results.
    """
    whole = _mean(draws)
    if whole is None:
        raise ValueError(f"{method}, {seen}: no traces to predict; name more families or a larger sample")
    errors = [scores.mre for draw in draws if (scores := score(draw))]
    families = sorted({result.family for draw in draws for result in draw})
    return Row(
        method=method,
        seen=seen,
        all_traces=whole,
        clean_traces=_mean([[result for result in draw if result.clean] for draw in draws]),
        families={name: _family_error(draws, name) for name in families},
        draws_spread=float(np.std(errors, ddof=1)) if len(errors) > 1 else None,
        fit_s=fit_s,
        predict_s=predict_s,
    )


def _mean(draws: Sequence[Sequence[Result]]) -> Score | None:
    scores = [asdict(found) for draw in draws if (found := score(draw))]
    if not scores:
        return None
    means: dict[str, Any] = {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}
    return Score(**{**means, "traces": round(means["traces"])})


def _family_error(draws: Sequence[Sequence[Result]], family: str) -> float:
    found = _mean([[result for result in draw if result.family == family] for draw in draws])
    assert found is not None
    return found.mre


def _columns(results: Sequence[Result]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array([one.predicted_s for one in results]), np.array([one.measured_s for one in results])


def record_rows(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """Rows as JSON values."""
    return {
        **about,
        "rows": [asdict(row) for row in rows],
        "references": [asdict(reference) for reference in REFERENCES],
    }


def print_rows(rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """Print rows as tables."""
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    console.print(", ".join(f"{name} {value}" for name, value in about.items()), markup=False)
    console.print(_build_errors(rows))
    console.print(_build_families(rows))
    console.print(_build_references())


_HEADS = (
    "method",
    "knows",
    "traces",
    "MRE %",
    "clean %",
    "RMSE ms",
    "clean ms",
    "p10 / median / p90 %",
    "fit s",
    "predict s",
)


def _build_errors(rows: Sequence[Row]) -> Table:
    table = _table("Errors of the iteration's time", _HEADS, left=2)
    for row in rows:
        whole, clean = row.all_traces, row.clean_traces
        spread = "" if row.draws_spread is None else f" ± {row.draws_spread:.1f}"
        table.add_row(
            row.method,
            row.seen,
            str(whole.traces),
            f"{whole.mre:.1f}{spread}",
            "" if clean is None else f"{clean.mre:.1f}",
            f"{whole.rmse_ms:.1f}",
            "" if clean is None else f"{clean.rmse_ms:.1f}",
            f"{whole.p10:+.0f} / {whole.median:+.0f} / {whole.p90:+.0f}",
            "" if row.fit_s is None else f"{row.fit_s:.1f}",
            "" if row.predict_s is None else f"{row.predict_s:.1f}",
        )
    return table


def _build_families(rows: Sequence[Row]) -> Table:
    families = sorted({family for row in rows for family in row.families})
    table = _table("MRE of each family, %", ("method", "knows", *families), left=2)
    for row in rows:
        cells = (f"{row.families[family]:.1f}" if family in row.families else "" for family in families)
        table.add_row(row.method, row.seen, *cells)
    return table


def _build_references() -> Table:
    table = _table("Not measured here: T4, MRE %", ("method", "unseen", "unseen, clean", "random"), left=1)
    for reference in REFERENCES:
        table.add_row(reference.method, reference.unseen, reference.clean, reference.random)
    return table


def _table(title: str, heads: Sequence[str], *, left: int) -> Table:
    table = Table(title=title, title_justify="left")
    for position, head in enumerate(heads):
        table.add_column(head, justify="left" if position < left else "right")
    return table
