"""Text and tables of runs."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from foretell.core.render.phrases import (
    clean_block,
    clean_line,
    count,
    explain_failure,
    name_place,
    name_state,
    render_memory,
    render_parameters,
    render_size,
    render_time,
)
from foretell.core.render.tables import (
    GOOD,
    HEADING,
    QUIET,
    add_cells,
    build_facts,
    build_line,
    build_notes,
    build_table,
    stack,
)
from foretell.core.run import (
    JOB_COLUMNS,
    LAST_COLUMNS,
    RESOURCE_COLUMNS,
    RETRIABLE,
    USAGE_COLUMNS,
    ImportResult,
    Machine,
    Run,
    State,
    Usage,
)
from foretell.core.serialization import Record, to_record
from foretell.core.units import render_bytes, render_duration

if TYPE_CHECKING:
    from foretell.core.table_files import Table

_MACHINE = tuple(name for name in Machine.__dataclass_fields__ if name != "extra")
_OWN_COLUMNS = frozenset({*RESOURCE_COLUMNS, *USAGE_COLUMNS, *JOB_COLUMNS, *LAST_COLUMNS})


def build_run_record(run: Run) -> Record:
    """Return a run as one flat row: parameters first, then resources, usage and result.

    A parameter with the name of another column becomes ``parameter_NAME``.
    """
    allocation, machine = run.spec.allocation, run.machine
    row: Record = {_name_column(name): value for name, value in run.spec.parameters.items()}
    row |= {name: getattr(allocation, name) for name in RESOURCE_COLUMNS}
    row |= {name: getattr(run.usage, name, None) for name in USAGE_COLUMNS}
    row |= {f"phase_{name}": value for name, value in run.phases.items()}
    row |= {f"machine_{name}": getattr(machine, name) for name in _MACHINE}
    row |= {f"machine_{name}": value for name, value in machine.extra.items() if name not in _MACHINE}
    row |= {"state": run.state, "exit_code": run.exit_code, "reason": run.reason, "source": run.source}
    row |= {"scale": run.spec.scale, "repetition": run.spec.repetition, "app": run.spec.app, "id": run.id}
    row |= {"started_at": run.started_at, "ended_at": run.ended_at, "job_id": run.job_id}
    return {_encodable(str(name)): _encodable(to_record(value)) for name, value in row.items()}


def build_runs_table(runs: Iterable[Run]) -> "Table":
    """Return runs as a table: parameters, resources, usage, ``phase_`` and ``machine_`` columns, then the rest."""
    from foretell.core.table_files import Table  # most records need no tables

    rows = [build_run_record(run) for run in runs]
    return Table.from_rows(rows, _order_columns(name for row in rows for name in row))


def _order_columns(names: Iterable[str]) -> list[str]:
    """Return columns grouped by kind, always in the same order."""
    found = dict.fromkeys(names)
    phases = [name for name in found if name.startswith("phase_")]
    machine = [name for name in found if name.startswith("machine_")]
    own = dict.fromkeys((*RESOURCE_COLUMNS, *USAGE_COLUMNS, *phases, *machine, *JOB_COLUMNS, *LAST_COLUMNS))
    return [*(name for name in found if name not in own), *own]


def _encodable(value: Any) -> Any:
    """Return text that can be encoded: lone surrogates are escaped."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def _name_column(name: str) -> str:
    taken = name in _OWN_COLUMNS or name.startswith(("phase_", "machine_"))
    return f"parameter_{name}" if taken else name


_MOST_ROWS = 5


def render_import(result: ImportResult) -> Group:
    """Return what was imported and what was not, with the reason and the first rows."""
    facts = build_facts(
        [
            ("app", result.app),
            ("added", count(result.added, "run")),
            ("already there", str(result.already_there) if result.already_there else ""),
            ("parameters", ", ".join(result.parameters)),
        ]
    )
    skipped = [
        f"{count(len(rows), 'row')} left out: {reason} (row {', '.join(map(str, rows[:_MOST_ROWS]))}"
        f"{', …' if len(rows) > _MOST_ROWS else ''})"
        for reason, rows in result.skipped.items()
    ]
    return stack(facts, *build_notes("Left out:", skipped))


BUSY_CORES = 0.5
STATE_STYLES = {State.COMPLETED: GOOD, State.RUNNING: "", State.CANCELLED: QUIET}


def explain_outcome(run: Run) -> str:
    """Return why a run did not complete, with the last line of its stderr."""
    last = run.last_line if run.state is not State.COMPLETED else ""
    return explain_failure(run) + (f": {last}" if last else "")


def render_runs(runs: Sequence[Run], *, total: int) -> Group:
    """Return stored runs, one line each, with the reason if all failed; ``total`` is their number in the store."""
    if not runs:
        return stack(Text("No runs. 'foretell generate' makes runs, 'foretell runs import' reads them from a table."))
    columns = ["Run", "State", "Scale", "Size", "Time", "Memory", "Parameters"]
    failed = all(run.state in RETRIABLE for run in runs)
    table = build_table(*columns, *["Why"] * failed, numbers=("Time", "Memory"), whole=("Run",))
    for run in runs:
        add_cells(
            table,
            run.id,
            name_state(run.state),
            run.spec.scale,
            render_size(run.spec.allocation),
            render_time(run),
            render_memory(run),
            render_parameters(run.spec.parameters),
            *[explain_outcome(run)] * failed,
        )
    return stack(table, Text(f"{len(runs):,} of {count(total, 'run')}", style=QUIET))


def render_run(run: Run) -> Group:
    """Return all facts about a run."""
    log = clean_block(run.log_tail)
    return stack(
        build_line(f"{run.spec.app} {run.id}: {name_state(run.state)}", HEADING),
        build_facts([*_list_run_facts(run), *_list_usage_facts(run), *_list_machine_facts(run.machine)]),
        Text("\nEnd of its log", style=HEADING) if log else None,
        Text(log) if log else None,
    )


def _list_run_facts(run: Run) -> list[tuple[str, str]]:
    allocation = run.spec.allocation
    asked = "" if allocation.memory_bytes is None else f", {render_bytes(allocation.memory_bytes)} of memory"
    place = name_place(allocation)
    return [
        ("Why", "" if run.state in (State.COMPLETED, State.RUNNING) else explain_failure(run)),
        ("Note", clean_line(run.reason) if run.state is State.COMPLETED else ""),
        ("Exit code", "" if run.exit_code is None else str(run.exit_code)),
        ("Parameters", render_parameters(run.spec.parameters)),
        ("Size", render_size(allocation) + asked + ("" if place == "-" else f" on {place}")),
        ("Scale", f"{run.spec.scale.name.replace('_', ' ').lower()}, repetition {run.spec.repetition}"),
        ("Started", "" if run.started_at is None else f"{run.started_at:%Y-%m-%d %H:%M:%S %Z}"),
        ("Ended", "" if run.ended_at is None else f"{run.ended_at:%Y-%m-%d %H:%M:%S %Z}"),
        ("Source", run.source),
    ]


def _list_usage_facts(run: Run) -> list[tuple[str, str]]:
    usage = run.usage or Usage(elapsed_s=float("nan"))
    return [
        ("Time", render_time(run)),
        ("CPU time", "" if usage.cpu_s is None else render_duration(usage.cpu_s)),
        ("Peak memory", render_memory(run)),
        ("Read", "" if usage.read_bytes is None else render_bytes(usage.read_bytes)),
        ("Written", "" if usage.written_bytes is None else render_bytes(usage.written_bytes)),
        ("Context switches", "" if usage.context_switches is None else f"{usage.context_switches:,}"),
        ("GPU utilisation", "" if usage.gpu_utilisation is None else f"{100 * usage.gpu_utilisation:.0f} %"),
        ("GPU memory", "" if usage.gpu_memory_bytes is None else render_bytes(usage.gpu_memory_bytes)),
        ("Phases", ", ".join(f"{name} {value:.4g}" for name, value in run.phases.items())),
    ]


def _list_machine_facts(machine: Machine) -> list[tuple[str, str]]:
    speed = "" if machine.cpu_mhz is None else f" at {machine.cpu_mhz:.0f} MHz"
    return [
        ("Machine", machine.hostname),
        ("CPU", machine.cpu_model + speed),
        ("Cores", "" if machine.cores is None else str(machine.cores)),
        ("Memory", "" if machine.memory_bytes is None else render_bytes(machine.memory_bytes)),
        ("GPUs", f"{machine.gpus} x {machine.gpu_model}" if machine.gpus else ""),
        ("Load of others", "" if machine.load is None else f"{machine.load:.2f} cores"),
        *((name, str(value)) for name, value in machine.extra.items()),
    ]
