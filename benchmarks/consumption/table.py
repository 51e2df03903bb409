"""Prints the results of ``python -m benchmarks consumption`` as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.consumption.comparison import Figure, summarise
from benchmarks.consumption.end_to_end import Compared
from benchmarks.consumption.transfer import Point

_WIDTH = 130  # without a terminal
PUBLISHED = {"compute": 11.0, "memory": 9.0, "transmit": 17.0, "receive": 15.0}  # Driple's, on its own data


def print_figures(figures: Sequence[Figure], about: Mapping[str, Any]) -> None:
    """Errors of each method on each metric, then the means of each resource."""
    console = _console()
    families = ", ".join(f"{name} {count}" for name, count in about["families"].items())
    console.print(f"{about['jobs']} jobs in {about['settings']} settings; families held back in turn: {families}")
    methods = list(dict.fromkeys(figure.method for figure in figures))
    table = Table(title="Mean error, % (± over families; median; NRMSE)", title_justify="left")
    for head in ("resource", "metric", *methods, "measured again"):
        table.add_column(head, justify="left" if head in ("resource", "metric") else "right")
    for resource, metric in dict.fromkeys((figure.resource, figure.metric) for figure in figures):
        cells = [_cell(figures, method, resource, metric) for method in methods]
        table.add_row(resource, metric, *cells, _noise(about, resource, metric))
    console.print(table)
    console.print(_build_means(figures, methods))
    console.print("time to fit, s: " + ", ".join(f"{name} {took}" for name, took in about["fit_s"].items()))
    if "bounds" in about:
        bounds = about["bounds"]
        console.print(
            f"{bounds['level']:.0f} % intervals contain {bounds['inside']:.1f} %, {bounds['width']:.0f} % wide"
        )


def _cell(figures: Sequence[Figure], method: str, resource: str, metric: str) -> str:
    found = [f for f in figures if (f.method, f.resource, f.metric) == (method, resource, metric)]
    return f"{found[0].error:.1f} ± {found[0].spread:.1f}; {found[0].median:.1f}; {found[0].nrmse:.0f}" if found else ""


def _noise(about: Mapping[str, Any], resource: str, metric: str) -> str:
    name = "iteration" if resource == "iteration" else f"{resource} {metric}"
    return f"{about['noise'][name]:.1f}" if name in about["noise"] else ""


def _build_means(figures: Sequence[Figure], methods: Sequence[str]) -> Table:
    means = summarise(figures)
    table = Table(title="Mean over the metrics of a resource, %", title_justify="left")
    for head in ("resource", *methods, "Driple, on its own data"):
        table.add_column(head, justify="left" if head == "resource" else "right")
    for resource in PUBLISHED:
        cells = [f"{means[method][resource]:.1f}" if resource in means[method] else "" for method in methods]
        table.add_row(resource, *cells, f"{PUBLISHED[resource]:.0f}")
    return table


def print_transfer(points: Sequence[Point], about: Mapping[str, Any]) -> None:
    """Errors after some jobs of a setting that was held back."""
    console = _console()
    table = Table(title="A setting that was held back: mean error over all metrics, %", title_justify="left")
    for head in ("method", "fitted", "jobs", "error", "± settings and draws", "no prediction", "time to fit, s"):
        table.add_column(head, justify="left" if head in ("method", "fitted") else "right")
    for point in points:
        cells = (f"{point.error:.1f}", f"{point.spread:.1f}", str(point.silent or ""), f"{point.fit_s:.4f}")
        table.add_row(point.method, point.how, str(point.jobs), *cells)
    console.print(table)
    for name, saved in about["savings"].items():
        for each in saved:
            console.print(
                f"{name}: {each.error:.1f} % with {each.jobs} transferred jobs, with {each.scratch_jobs:.1f} from "
                f"scratch: {each.times:.1f} x fewer jobs, {each.scratch_times:.1f} x less time to fit"
            )


def print_compared(rows: Sequence[Compared], about: Mapping[str, Any]) -> None:
    """Predictions of networks and observations of their trainings."""
    console = _console()
    table = Table(title="Predicted before, observed after", title_justify="left")
    for head in ("network", "resource", "metric", "predicted", "90 % interval", "observed", "error %"):
        table.add_column(head, justify="left" if head in ("network", "resource", "metric") else "right")
    for row in rows:
        scale = 1e6 if row.resource in ("transmit", "receive") and row.metric == "burst_amount" else 1.0
        bounds = f"{row.low / scale:.3g} to {row.high / scale:.3g}"
        observed = "no cycle" if row.observed is None else f"{row.observed / scale:.3g}"
        error = "" if row.error is None else f"{row.error:.1f}"
        unit = f"{row.metric}, MB/s" if scale > 1 else row.metric
        table.add_row(row.network, row.resource, unit, f"{row.predicted / scale:.3g}", bounds, observed, error)
    console.print(table)
    means = ", ".join(f"{name} {error:.1f}" for name, error in about["errors"].items())
    console.print(f"mean error, %: {means}; {about['inside']} of {about['figures']} inside their intervals")
    console.print(f"cores used by other processes: {about['others']}, by other virtual machines: {about['stolen']}")


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)
