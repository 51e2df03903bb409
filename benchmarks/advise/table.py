"""The tables of ``python -m benchmarks advise``."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.advise.published import Compared, ComparedJob
from benchmarks.advise.results import PickResult, Result
from benchmarks.advise.scaling import ScalingResult

_WIDTH = 170  # without a terminal
_ERRORS = ("part", "of", "cases", "median %", "mean %", "p90 %", "shift %", "inside 90 %", "width %", "goal", "note")
_PICKS = ("part", "question", "cases", "within 10 % of the best", "by chance", "worst, % of the best", "goal")
_SCALING = ("of", "cases", "published %", "predicted %")
_DETAILS = ("source", "network", "device", "gpus", "precision", "batch", "layout", "published", "predicted", "ratio")
_PARTS = ("compute", "tensor", "data", "bubble", "host")


def print_results(
    results: Sequence[Result],
    picks: Sequence[PickResult],
    scaling: Sequence[ScalingResult],
    left_out: Sequence[str],
) -> None:
    """Print errors, picks, how rates grow with GPUs, and what is left out."""
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    if results:
        console.print(_build("Errors of predicted times", _ERRORS, [_describe_errors(each) for each in results]))
    if picks:
        console.print(_build("The choice predicted to be best", _PICKS, [_describe_pick(each) for each in picks]))
    if scaling:
        rows = [(each.group, str(each.cases), f"{each.published:.1f}", f"{each.predicted:.1f}") for each in scaling]
        console.print(_build("Rate of each GPU, in % of one alone (medians)", _SCALING, rows))
    for line in left_out:
        console.print(line)


def _build(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in ("part", "of", "question", "goal", "note") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _describe_errors(each: Result) -> tuple[str, ...]:
    figures = (each.median, each.mean, each.ninetieth)
    shift = f"{each.shift:+.1f}"
    shown = (*(f"{figure:.1f}" for figure in figures), shift, f"{each.inside:.0f}", f"{each.width:.0f}")
    return (each.part, each.group, str(each.cases), *shown, each.goal, each.note)


def _describe_pick(each: PickResult) -> tuple[str, ...]:
    return (
        each.part,
        each.group,
        str(each.cases),
        f"{each.good:.0f}",
        f"{each.chance:.0f}",
        f"{each.worst:.0f}",
        each.goal,
    )


def render_details(rows: Sequence[Compared], jobs: Sequence[ComparedJob]) -> str:
    """A line for each row, with tabs: examples a second and shares of the step, or seconds of a job."""
    lines = ["\t".join((*_DETAILS, "inside", *_PARTS, "label"))]
    lines += ["\t".join(_describe_row(each)) for each in rows]
    lines += ["\t".join(_describe_job(each)) for each in jobs]
    return "\n".join(lines)


def _describe_row(each: Compared) -> tuple[str, ...]:
    parts = each.predicted.step.parts
    total = sum(parts.values()) or 1.0
    return (
        *_describe_facts(each),
        f"{each.row.rate:.6g}",
        f"{each.rate:.6g}",
        f"{each.ratio:.3f}",
        "yes" if each.inside else "no",
        *(f"{100 * parts.get(name, 0.0) / total:.1f}" for name in _PARTS),
        each.row.label,
    )


def _describe_job(each: ComparedJob) -> tuple[str, ...]:
    return (
        *_describe_facts(each.step),
        f"{each.measured_s:.0f} s",
        f"{each.total.value:.0f} s",
        f"{each.ratio:.3f}",
        "yes" if each.inside else "no",
        *[""] * len(_PARTS),
        f"{each.step.row.label}, waits for data {100 * each.waiting:.0f} %",
    )


def _describe_facts(each: Compared) -> tuple[str, ...]:
    row = each.row
    batch = f"{row.batch} x {row.accumulation}" if row.accumulation > 1 else str(row.batch)
    layout = str(each.predicted.row.layout)
    return (row.source, row.network, row.device.name, str(row.gpus), row.precision, batch, layout)
