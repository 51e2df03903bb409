"""Text of imports, applications and waste."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rich.console import Group

from foretell.core.past_jobs import Complaint, HistoryApp, HistoryImport, Waste, WasteReport
from foretell.core.render.phrases import clean_line, count
from foretell.core.render.tables import (
    HEADING,
    QUIET,
    add_cells,
    build_facts,
    build_line,
    build_notes,
    build_table,
    stack,
)
from foretell.core.units import render_money

_TITLES = {"user": "User", "account": "Account", "app": "Application", "partition": "Partition"}
_LONGEST_NAME = 22
_NO_CENTS = 100  # from here on
_NO_GPU_USE = "GPU-hours are allocated ones: accounting does not record how busy GPUs were."


def render_history_import(result: HistoryImport) -> Group:
    """Return what was imported and what was not, with the reason and the first line."""
    before = result.read_before
    windows = result.sources == ("sacct",)
    facts = build_facts(
        [
            ("read", f"{count(result.lines, 'line')} of {', '.join(result.sources)}"),
            ("read before", count(before, "window" if windows else "line") if before else ""),
            ("new or changed", count(result.changed, "job")),
            ("already there", count(result.already_there, "job") if result.already_there else ""),
            ("not finished", f"{count(result.unfinished, 'job')}, for a later import" if result.unfinished else ""),
        ]
    )
    return stack(facts, *build_notes("Left out:", map(_describe, result.complaints)))


def _describe(complaint: Complaint) -> str:
    lines = "1 line was" if complaint.count == 1 else f"{complaint.count:,} lines were"
    what = (
        f"{lines} left out: {complaint.reason}" if complaint.reason != "not understood" else f"{lines} not understood"
    )
    return f"{what}; the first: line {complaint.line:,}: {clean_line(complaint.text)}" if complaint.line else what


def render_history_apps(apps: Sequence[HistoryApp], *, rows: int) -> Group:
    """Return the applications with most jobs."""
    if not apps:
        return stack(build_line("No past jobs. 'foretell history import' reads them from accounting."))
    numbers = ("Jobs", "Completed", "Users", "Core-hours", "GPU-hours")
    table = build_table("Application", *numbers, "Last submitted", numbers=numbers)
    for app in apps[:rows]:
        last = datetime.fromtimestamp(app.last_submitted_at, tz=UTC)
        add_cells(
            table,
            app.app,
            f"{app.jobs:,}",
            f"{app.completed:,}",
            f"{app.users:,}",
            _amount(app.core_hours),
            _amount(app.gpu_hours),
            f"{last:%Y-%m-%d}" if app.last_submitted_at else "",
        )
    more = len(apps) - rows
    rest = build_line(f"and {count(more, 'more application')}; --rows shows them", QUIET) if more > 0 else None
    return stack(table, rest)


def render_waste(report: WasteReport, *, rows: int) -> Group:
    """Return a row for each group, the largest bill first, and a total; then what the columns mean."""
    title = f"{report.site}: requested against used" if report.site else "Requested against used"
    costs = ("Paid", "One request", "At best") if report.currency else ("Core-hours", "One request", "At best")
    gpus = ("GPU-h",) if report.total.gpu_hours else ()
    numbers = ("Jobs", "Done", "Time", "CPU", "Mem", *gpus, *costs, "Saved")
    table = build_table(_TITLES[report.by], *numbers, numbers=numbers)
    table.columns[0].no_wrap = True  # headings of other columns may wrap, names may not
    render = _renderer(report)
    for row in report.rows[:rows]:
        add_cells(table, *_list_cells(row, render, gpus=bool(gpus)))
    more = report.rows[rows:]
    if more:
        add_cells(table, f"and {len(more):,} more", *[""] * len(numbers), style=QUIET)
    if len(report.rows) > 1:
        add_cells(table, *_list_cells(report.total, render, gpus=bool(gpus)), style=HEADING)
    return stack(build_line(title, HEADING), table, _summarise(report, render), *_explain(report))


def _renderer(report: WasteReport) -> Callable[[float], str]:
    if not report.currency:
        return _amount
    return lambda cost: _render_cost(cost, report.currency)


def _render_cost(cost: float, currency: str) -> str:
    """Return a cost, without cents where they do not matter."""
    return (
        render_money(cost, currency)
        if abs(cost) < _NO_CENTS
        else render_money(round(cost), currency).replace(".00", "")
    )


def _list_cells(row: Waste, render: Callable[[float], str], *, gpus: bool) -> tuple[str, ...]:
    saved = 1 - row.one_request / row.paid if row.paid else None
    return (
        _shorten(row.name),
        f"{row.jobs:,}",
        _percent(row.completed / row.jobs),
        "" if row.time_ratio is None else f"{row.time_ratio:.1f} x",
        _percent(row.cpu_used),
        _percent(row.memory_used),
        *([_amount(row.gpu_hours)] if gpus else []),
        render(row.paid),
        render(row.one_request),
        render(row.at_best),
        _percent(saved),
    )


def _summarise(report: WasteReport, render: Callable[[float], str]) -> Group:
    total, unit = report.total, "" if report.currency else " core-hours"
    lines = [
        f"{count(total.jobs, 'job')} cost {render(total.paid)}{unit}; {render(total.lost)} of it went to jobs that did "
        f"not complete.",
        f"One request for each application would have cost {render(total.one_request)}{unit}, requests made in "
        f"hindsight {render(total.at_best)}{unit}.",
    ]
    return stack(*(build_line(line) for line in lines))


def _explain(report: WasteReport) -> list[Group]:
    notes = [
        "Time: requested over used, the median of completed jobs. CPU, Mem: the share used of what was allocated.",
        "One request: what 95 % of an application's jobs would have needed, retries paid. At best: in hindsight.",
    ]
    if report.total.gpu_hours:
        notes.append(_NO_GPU_USE)
    if report.unmeasured_memory:
        notes.append(f"{count(report.unmeasured_memory, 'job')} without a figure of memory: assumed to be fully used.")
    if report.unpriced:
        names = ", ".join(f"{name} ({jobs:,})" for name, jobs in sorted(report.unpriced.items()))
        notes.append(f"Not in the costs, because {report.site} has no such partition: {names}")
    return [stack(*(build_line(note, QUIET) for note in notes))]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _shorten(name: str) -> str:
    text = clean_line(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
