"""Errors on traces that a method has not seen, as figures and as a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

_WIDTH = 160  # where there is no terminal to ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was told of a trace, and what was measured."""

    family: str
    clean: bool
    told_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How far answers are off. Relative errors in per cent, of the measured time; too long is above zero."""

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
    seen: str = "zero-shot"  # what it knows of the variants it is asked about
    all_traces: Score
    clean_traces: Score | None
    families: Mapping[str, float] = field(default_factory=dict)  # MRE
    draws_spread: float | None = None  # standard deviation of the MRE, where profiles were drawn more than once
    fit_s: float | None = None
    predict_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What others report."""

    method: str
    unseen: str = ""
    clean: str = ""
    random: str = ""


REFERENCES = (
    Reference(method="published: ETS, its own filter and label, RandWire and NLP models included", unseen="5.9"),
    Reference(method="published: ETS's own result file, T4", random="7.3"),
    Reference(method="published: ETS's stored predictions on 89 unseen configurations, no update", unseen="17.1"),
    Reference(method="first try: boosting of operators with neighbours", unseen="17.5", clean="13.5", random="7.2"),
    Reference(method="first try: two timelines, zero-shot", unseen="14.8", clean="10.1", random="4.8"),
    Reference(method="first try: two timelines, + 1 / 2 profiles", unseen="7.7 / 6.4", clean="7.3 / 5.6"),
    Reference(method="wanted: zero-shot / 1 / 2 profiles", unseen="8 / 5 / 4", clean="6 / 4 / 3", random="3"),
)


def score(answers: Iterable[Answer]) -> Score | None:
    """Figures of some answers; none of none."""
    kept = list(answers)
    if not kept:
        return None
    told, measured = _columns(kept)
    relative = 100 * (told - measured) / measured
    p10, median, p90 = np.percentile(relative, [10, 50, 90])
    return Score(
        traces=len(kept),
        mre=float(np.mean(np.abs(relative))),
        rmse_ms=float(1e3 * np.sqrt(np.mean((told - measured) ** 2))),
        p10=float(p10),
        median=float(median),
        p90=float(p90),
    )


def build_row(
    method: str,
    draws: Sequence[Sequence[Answer]],
    *,
    seen: str = "zero-shot",
    fit_s: float | None = None,
    predict_s: float | None = None,
) -> Row:
    """A row of one or more draws; figures are means over the draws.

    Raises:
        ValueError: if there is nothing to judge.
    """
    whole = _mean(draws)
    if whole is None:
        raise ValueError(f"{method}, {seen}: no traces to judge; name more families or a larger sample")
    errors = [judged.mre for draw in draws if (judged := score(draw))]
    families = sorted({answer.family for draw in draws for answer in draw})
    return Row(
        method=method,
        seen=seen,
        all_traces=whole,
        clean_traces=_mean([[answer for answer in draw if answer.clean] for draw in draws]),
        families={name: _family_error(draws, name) for name in families},
        draws_spread=float(np.std(errors, ddof=1)) if len(errors) > 1 else None,
        fit_s=fit_s,
        predict_s=predict_s,
    )


def _mean(draws: Sequence[Sequence[Answer]]) -> Score | None:
    judged = [asdict(found) for draw in draws if (found := score(draw))]
    if not judged:
        return None
    means: dict[str, Any] = {name: float(np.mean([one[name] for one in judged])) for name in judged[0]}
    return Score(**{**means, "traces": round(means["traces"])})


def _family_error(draws: Sequence[Sequence[Answer]], family: str) -> float:
    found = _mean([[answer for answer in draw if answer.family == family] for draw in draws])
    assert found is not None
    return found.mre


def _columns(answers: Sequence[Answer]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array([one.told_s for one in answers]), np.array([one.measured_s for one in answers])


def record_rows(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """Rows for programs."""
    return {
        **about,
        "rows": [asdict(row) for row in rows],
        "references": [asdict(reference) for reference in REFERENCES],
    }


def print_rows(rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """Rows for people."""
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
    "all told in s",
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
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < left else "right")
    return table
