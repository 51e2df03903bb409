"""Training steps for programs: what ``--json`` prints, and tables of operators."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from foretell.core.serialization import to_record
from foretell.core.table_files import Table
from foretell.core.workload import Floats, MeasuredStep, Operator, StepPhase, Workload
from foretell.steps.step_results import (
    LearnedDevice,
    StepPrediction,
    find_gaps,
    find_phases,
    group_operators,
    list_layers,
)

Record = dict[str, Any]

_FLAT = ("kind", "phase", "dtype", "flops", "bytes_moved", "parameters", "kernels")


class MeasuredProfile(Protocol):
    """A measured step, and how well it was measured."""

    @property
    def step(self) -> MeasuredStep: ...
    @property
    def steps(self) -> int: ...
    @property
    def spread(self) -> float: ...
    @property
    def overhead(self) -> float: ...
    @property
    def load(self) -> float | None: ...
    @property
    def facts(self) -> Mapping[str, str]: ...


def build_workload_record(workload: Workload) -> Record:
    """The whole step: totals, totals of each phase, and the operators in the order in which they run."""
    return {
        **_describe(workload),
        "phases": {phase: _total(workload, phase) for phase in StepPhase},
        "operators": [{"layer": layer, **_describe_operator(operator)} for layer, operator in _with_layers(workload)],
    }


def build_operator_table(workload: Workload) -> Table:
    """A row for each operator in the order in which they run; shapes as text."""
    rows = [
        {
            "layer": layer,
            **{name: to_record(getattr(operator, name)) for name in _FLAT},
            "inputs": " ".join(map(render_shape, operator.inputs)),
            "output": render_shape(operator.output),
            "attributes": " ".join(f"{name}={_render_attribute(value)}" for name, value in operator.attributes),
        }
        for layer, operator in _with_layers(workload)
    ]
    columns = ("phase", "layer", "kind", "inputs", "output", *_FLAT[2:], "attributes")
    return Table.from_rows(rows, columns)


def build_step_record(prediction: StepPrediction, *, rows: int) -> Record:
    """The estimate with its parts, and the operators that cost most."""
    estimate = prediction.estimate
    return {
        "device": prediction.device,
        "method": prediction.method,
        **_describe(prediction.workload),
        "iteration_s": to_record(estimate.iteration),
        "phases_s": {phase: float(estimate.phases.get(phase, 0.0)) for phase in StepPhase},
        "busy_s": estimate.busy_s,
        "overhead_s": estimate.overhead_s,
        "examples_per_s": prediction.examples_per_s,
        "costly": _list_costly(prediction.workload, estimate.kernel_s, estimate.gap_s, rows),
        "warnings": to_record(prediction.warnings),
    }


def build_profile_record(profile: MeasuredProfile, *, rows: int) -> Record:
    """A measured step with its parts, how well it was measured, and the operators that took longest."""
    step = profile.step
    return {
        "device": step.device,
        **_describe(step.workload),
        "iteration_s": step.iteration_s,
        "steps": profile.steps,
        "spread": profile.spread,
        "overhead": profile.overhead,
        "load": profile.load,
        "facts": dict(profile.facts),
        "phases_s": find_phases(step),
        "costly": _list_costly(step.workload, step.kernel_s, find_gaps(step), rows),
    }


def build_learned_record(learned: LearnedDevice) -> Record:
    """What a device's times were learned from."""
    return {
        "device": to_record(learned.device),
        "method": learned.method,
        "networks": learned.networks,
        "profiles": learned.profiles,
        "seconds": learned.seconds,
        "file": str(learned.path),
    }


def render_shape(shape: Sequence[int]) -> str:
    """``32x3x224x224``; ``1`` where there is one number only."""
    return "x".join(map(str, shape)) or "1"


def _describe(workload: Workload) -> Record:
    return {
        "name": workload.name,
        "batch": workload.batch,
        "settings": dict(workload.settings),
        "parameters": workload.parameters,
        "operator_count": len(workload.operators),
        "flops": workload.flops,
        "bytes_moved": workload.bytes_moved,
    }


def _total(workload: Workload, phase: StepPhase) -> Record:
    chosen = [operator for operator in workload.operators if operator.phase is phase]
    return {
        "operator_count": len(chosen),
        "kernels": sum(operator.kernels for operator in chosen),
        "flops": sum(operator.flops for operator in chosen),
        "bytes_moved": sum(operator.bytes_moved for operator in chosen),
    }


def _describe_operator(operator: Operator) -> Mapping[str, Any]:
    record: Record = to_record(operator)
    return {**record, "attributes": {name: to_record(value) for name, value in operator.attributes}}


def _list_costly(workload: Workload, kernel_s: Floats, gap_s: Floats, rows: int) -> list[Record]:
    groups = group_operators(workload, kernel_s, gap_s)[:rows]
    return [
        {
            "calls": len(group.layers),
            "seconds": group.seconds,
            "gap_s": group.gap_s,
            "layers": list(dict.fromkeys(group.layers)),
            **_describe_operator(group.operator),
        }
        for group in groups
    ]


def _with_layers(workload: Workload) -> list[tuple[str, Operator]]:
    return list(zip(list_layers(workload), workload.operators, strict=True))


def _render_attribute(value: int | Sequence[int]) -> str:
    return str(value) if isinstance(value, int) else render_shape(value)
