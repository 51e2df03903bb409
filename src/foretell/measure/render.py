"""A machine and its bench, for the terminal."""

from typing import Any

from rich.console import Group
from rich.table import Table

from foretell.core.render.tables import (
    HEADING,
    QUIET,
    add_cells,
    build_facts,
    build_line,
    build_table,
    build_warnings,
    stack,
)
from foretell.core.run import BENCH_FIGURES, Bench, Machine
from foretell.core.serialization import to_record
from foretell.core.units import render_bytes

_WORK = {
    "bench_s": "core and memory together",
    "bench_core_s": "computing on one core",
    "bench_cores_s": "the same on every core at once",
    "bench_memory_s": "sweeping over memory",
    "bench_disk_s": "writing a file to disk and reading it",
}
_KEPT = "Kept: runs made on this machine carry these figures from now on."
_NOT_KEPT = "Not kept: measure again when the machine is quiet."
_NOT_KNOWN = "No bench is kept of this machine; 'foretell machine bench' makes one."


def render_bench(bench: Bench) -> Group:
    """What was measured, and whether it will be used."""
    return stack(
        build_line(f"{bench.hostname}: {bench.cpu_model}, {_count_cores(bench.cores)}", HEADING),
        _build_figures(bench),
        *build_warnings(bench.warnings),
        build_line(_NOT_KEPT if bench.warnings else _KEPT, QUIET),
    )


def render_machine(machine: Machine, bench: Bench | None) -> Group:
    """The facts of a machine, and its bench if it is known."""
    return stack(
        build_line(machine.hostname or "This machine", HEADING),
        build_facts(_list_facts(machine)),
        build_line(_NOT_KNOWN, QUIET) if bench is None else _build_figures(bench),
        None if bench is None else build_facts(_list_bench_facts(bench)),
    )


def build_machine_record(machine: Machine, bench: Bench | None) -> dict[str, Any]:
    """The same for programs."""
    return {**to_record(machine), "bench": to_record(bench)}


def _build_figures(bench: Bench) -> Table:
    table = build_table("Figure", "Time for", "Median", "Spread", numbers=("Median", "Spread"))
    for name in BENCH_FIGURES:
        seconds, spread = getattr(bench, name), bench.spread.get(name)
        shown = "not measured" if seconds is None else f"{seconds:.3f} s"
        add_cells(table, name, _WORK[name], shown, "" if spread is None else f"{spread:.1%}")
    return table


def _list_facts(machine: Machine) -> list[tuple[str, str]]:
    clock = "" if machine.cpu_mhz is None else f" at {machine.cpu_mhz:.0f} MHz"
    return [
        ("CPU", f"{machine.cpu_model}{clock}"),
        ("Cores", "" if machine.cores is None else str(machine.cores)),
        ("Physical cores", str(machine.extra.get("physical_cores", ""))),
        ("Architecture", str(machine.extra.get("architecture", ""))),
        ("Memory", "" if machine.memory_bytes is None else render_bytes(machine.memory_bytes)),
        ("GPUs", f"{machine.gpus} x {machine.gpu_model}" if machine.gpus else ""),
    ]


def _list_bench_facts(bench: Bench) -> list[tuple[str, str]]:
    return [
        ("Measured", f"{bench.measured_at:%Y-%m-%d %H:%M} UTC on {_count_cores(bench.cores)}"),
        ("Load of others", f"{bench.busy_cores:.2f} cores"),
        ("Version", str(bench.bench_version)),
        ("By", bench.software),
    ]


def _count_cores(cores: int) -> str:
    return f"{cores} core" if cores == 1 else f"{cores} cores"
