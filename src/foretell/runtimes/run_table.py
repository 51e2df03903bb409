"""Runs and configurations as columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.app import Value
from foretell.core.run import FITTED_STATES, Machine, Run, RunSpec, State

Column: TypeAlias = NDArray[Any]
Columns: TypeAlias = Mapping[str, Column]

_RESOURCES = ("cores", "gpus", "nodes")
MACHINE_PREFIX = "machine_"
MACHINE_CPU = f"{MACHINE_PREFIX}cpu"
MACHINE_ARCHITECTURE = f"{MACHINE_PREFIX}architecture"
_NUMERIC = (bool, int, float, np.number, np.bool_)
_MHZ_STEP = 50.0  # clock rates are read with some noise; a finer figure would look like a feature


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTable:
    """Runs to fit models to: their configurations as columns, and what was measured.

    ``censored`` marks runs that were stopped: what was measured of them is a lower bound of the truth.
    ``group`` numbers the configurations: repetitions of one share a number. ``load`` is how many cores others used
    during the run, ``nan`` where that is not known; left out, it is known of none.
    """

    columns: Columns
    elapsed_s: NDArray[np.float64]
    peak_memory_bytes: NDArray[np.float64]
    phases: Mapping[str, NDArray[np.float64]]
    full_scale: NDArray[np.bool_]
    censored: NDArray[np.bool_]
    group: NDArray[np.int64]
    run_ids: tuple[str, ...]
    load: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if len(self.load) != len(self.run_ids):
            object.__setattr__(self, "load", np.full(len(self.run_ids), np.nan))

    def __len__(self) -> int:
        return len(self.run_ids)

    def take(self, rows: NDArray[np.intp]) -> "RunTable":
        return RunTable(
            columns={name: column[rows] for name, column in self.columns.items()},
            elapsed_s=self.elapsed_s[rows],
            peak_memory_bytes=self.peak_memory_bytes[rows],
            phases={name: column[rows] for name, column in self.phases.items()},
            full_scale=self.full_scale[rows],
            censored=self.censored[rows],
            group=self.group[rows],
            run_ids=tuple(self.run_ids[row] for row in rows),
            load=self.load[rows],
        )


def build_table(runs: Iterable[Run]) -> RunTable:
    """The table of the runs that models are fitted to: completed ones, and stopped ones as lower bounds."""
    kept = [run for run in runs if run.state in FITTED_STATES and run.usage is not None and run.usage.elapsed_s > 0]
    usages = [run.usage for run in kept if run.usage is not None]
    names = sorted({name for run in kept for name in run.phases})
    numbers: dict[str, int] = {}  # by first appearance: ids hold the app's name, which must not change what is learned
    group = [numbers.setdefault(run.spec.configuration, len(numbers)) for run in kept]
    return RunTable(
        columns=build_columns([run.spec for run in kept], [run.machine for run in kept]),
        elapsed_s=np.array([usage.elapsed_s for usage in usages], dtype=float),
        peak_memory_bytes=np.array([usage.peak_memory_bytes or np.nan for usage in usages], dtype=float),
        phases={name: np.array([run.phases.get(name, np.nan) for run in kept], dtype=float) for name in names},
        full_scale=np.array([run.spec.scale == "FS" for run in kept], dtype=bool),
        censored=np.array([run.state is not State.COMPLETED for run in kept], dtype=bool),
        group=np.array(group, dtype=np.int64),
        run_ids=tuple(run.id for run in kept),
        load=np.array([np.nan if run.machine.load is None else run.machine.load for run in kept], dtype=float),
    )


def build_columns(specs: Sequence[RunSpec], machines: Sequence[Machine] | None = None) -> dict[str, Column]:
    """Parameters, resources and (if given) machine facts, a column each; numbers as floats, the rest as objects."""
    names = dict.fromkeys(name for spec in specs for name in spec.parameters)
    columns = {name: build_column([spec.parameters.get(name) for spec in specs]) for name in names}
    columns |= {name: build_column([getattr(spec.allocation, name) for spec in specs]) for name in _RESOURCES}
    facts = [_machine_facts(machine) for machine in machines or ()]
    kinds = dict.fromkeys(name for row in facts for name in row)
    return columns | {name: build_column([row.get(name) for row in facts]) for name in kinds}


def build_column(values: Sequence[Any]) -> Column:
    """Floats (``nan`` where missing) if every value is a number or a truth, else text."""
    plain = np.array(values) if not any(isinstance(value, str) for value in values) else None
    if plain is not None and plain.dtype.kind in "biuf":
        return plain.astype(float)
    if all(value is None or isinstance(value, _NUMERIC) for value in values):
        return np.array([_number(value) for value in values], dtype=float)
    return np.array([render_level(value) for value in values], dtype=object)


def render_level(value: Any) -> str:
    """A value as text: the same for a number whether it stood among texts or among numbers."""
    if not isinstance(value, _NUMERIC):
        return "" if value is None else str(value)
    number = _number(value)
    if np.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() else str(number)


def _number(value: Any) -> float:
    if value is None:
        return np.nan
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return np.inf if value > 0 else -np.inf


def _machine_facts(machine: Machine) -> dict[str, Value | None]:
    mhz = None if machine.cpu_mhz is None else round(machine.cpu_mhz / _MHZ_STEP) * _MHZ_STEP
    return {
        MACHINE_CPU: machine.cpu_model,
        "machine_cores": machine.cores,
        "machine_mhz": mhz,
        "machine_memory_bytes": machine.memory_bytes,
        "machine_gpu": machine.gpu_model or "",
        **{f"{MACHINE_PREFIX}{name}": value for name, value in machine.extra.items()},
    }
