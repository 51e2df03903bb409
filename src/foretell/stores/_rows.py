"""Our values to and from rows. Runs are built field by field, because a store may hold a hundred thousand of them."""

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from foretell.entities.app import App, Scale
from foretell.entities.learned import ModelCard, ModelRecord
from foretell.entities.records import from_record, to_record
from foretell.entities.run import Allocation, Claim, Machine, Owner, Run, RunSpec, State, Usage
from foretell.errors import StoreError

Row = dict[str, Any]

_FIGURES = tuple(field.name for field in dataclasses.fields(Usage))
_LARGEST = 2**63 - 1
_NO_USAGE: Row = dict.fromkeys(_FIGURES)
_NO_OWNER: Row = dict.fromkeys(
    ("owner_token", "owner_hostname", "owner_boot_id", "owner_pid", "owner_started_at", "heartbeat_at")
)
_STATES = {state.value: state for state in State}
_SCALES = {scale.value: scale for scale in Scale}


def build_app_row(app: App) -> Row:
    return {"name": check_name(app.name), "description": _render_json(to_record(app), place=f"app {app.name!r}")}


def build_app(description: str) -> App:
    return from_record(App, json.loads(description))


def build_run_row(run: Run) -> Row:
    """A finished run, owned by nobody."""
    row = _build_spec_row(run.spec)
    return row | _build_outcome_row(run, place=f"run {row['id']}") | _NO_OWNER | {"attempt": 1}


def build_outcome_row(run: Run) -> Row:
    """What finishing changes of a claimed run."""
    return _build_outcome_row(run, place=f"run {run.id}") | _NO_OWNER


def build_claim_row(spec: RunSpec, owner: Owner, *, now: datetime) -> Row:
    blank = Run(spec=spec, state=State.RUNNING)
    return _build_spec_row(spec) | _build_outcome_row(blank, place="") | _build_owner_row(owner, now) | {"attempt": 1}


def build_model_row(record: ModelRecord) -> Row:
    place = f"the model of {record.app!r}"
    return {
        "app": check_name(record.app),
        "card": _render_json(to_record(record.card), place=place),
        "extra": _render_json(dict(record.extra), place=place),
        "created_at": record.created_at,
        "blob": record.blob,
        "run_ids": _render_json(list(record.run_ids), place=place),
    }


def build_model(row: Any) -> ModelRecord:
    return ModelRecord(
        app=row.app,
        card=from_record(ModelCard, json.loads(row.card)),
        blob=row.blob,
        run_ids=(),
        created_at=row.created_at,
        extra=json.loads(row.extra),
    )


def build_run(row: Any) -> Run:
    return Run(
        spec=_build_spec(row),
        state=_STATES[row.state],
        usage=_build_usage(row),
        phases=json.loads(row.phases),
        machine=_build_machine(row.machine),
        exit_code=row.exit_code,
        log_tail=row.log_tail,
        reason=row.reason,
        started_at=row.started_at,
        ended_at=row.ended_at,
        source=row.source,
    )


def build_claim(row: Any) -> Claim:
    owner = Owner(
        token=row.owner_token,
        hostname=row.owner_hostname,
        boot_id=row.owner_boot_id,
        pid=row.owner_pid,
        started_at=row.owner_started_at,
    )
    return Claim(spec=_build_spec(row), owner=owner, heartbeat_at=row.heartbeat_at)


def check_name(name: str) -> str:
    """The name, if every database can hold it.

    Raises:
        StoreError: if not.
    """
    if _spell_out(name) != name:
        raise StoreError(f"the app name {name!r} holds characters that cannot be stored; use letters, digits, - and _")
    return name


def _build_spec_row(spec: RunSpec) -> Row:
    run_id = spec.id
    place = f"run {run_id}"
    return {
        "id": run_id,
        "app": check_name(spec.app),
        "scale": spec.scale.value,
        "repetition": spec.repetition,
        "parameters": _render_json(dict(spec.parameters), place=place),
        "allocation": _render_changes(spec.allocation, Allocation(), place=place),
    }


def _build_outcome_row(run: Run, *, place: str) -> Row:
    return _build_usage_row(run.usage, place=place) | {
        "state": run.state.value,
        "phases": _render_json(dict(run.phases), place=place),
        "machine": _render_changes(run.machine, Machine(), place=place),
        "exit_code": run.exit_code,
        "log_tail": _spell_out(run.log_tail),
        "reason": _spell_out(run.reason),
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "source": _spell_out(run.source),
    }


def _build_owner_row(owner: Owner, now: datetime) -> Row:
    return {
        "owner_token": owner.token,
        "owner_hostname": owner.hostname,
        "owner_boot_id": owner.boot_id,
        "owner_pid": owner.pid,
        "owner_started_at": owner.started_at,
        "heartbeat_at": now,
    }


def _build_usage_row(usage: Usage | None, *, place: str) -> Row:
    if usage is None:
        return _NO_USAGE
    if not math.isfinite(usage.elapsed_s):
        raise StoreError(f"{place}: elapsed_s is {usage.elapsed_s}; expected a number of seconds")
    return {name: _check_figure(getattr(usage, name), name=name, place=place) for name in _FIGURES}


def _check_figure(value: float | None, *, name: str, place: str) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    if abs(value) > _LARGEST:
        raise StoreError(f"{place}: {name} is {value}; expected a number below 2^63")
    return value


def _build_spec(row: Any) -> RunSpec:
    return RunSpec(
        app=row.app,
        parameters=json.loads(row.parameters),
        allocation=_build_allocation(row.allocation),
        scale=_SCALES[row.scale],
        repetition=row.repetition,
    )


def _build_usage(row: Any) -> Usage | None:
    if row.elapsed_s is None:
        return None
    return Usage(
        elapsed_s=row.elapsed_s,
        cpu_s=row.cpu_s,
        peak_memory_bytes=row.peak_memory_bytes,
        read_bytes=row.read_bytes,
        written_bytes=row.written_bytes,
        context_switches=row.context_switches,
        gpu_utilisation=row.gpu_utilisation,
        gpu_memory_bytes=row.gpu_memory_bytes,
    )


@lru_cache(maxsize=1024)
def _build_allocation(text: str) -> Allocation:
    return Allocation(**json.loads(text))


@lru_cache(maxsize=1024)
def _build_machine(text: str) -> Machine:
    return Machine(**json.loads(text))


def _render_changes(value: Allocation | Machine, default: Allocation | Machine, *, place: str) -> str:
    fields = {name: getattr(value, name) for name in value.__slots__}
    return _render_json({name: given for name, given in fields.items() if given != getattr(default, name)}, place=place)


def _render_json(value: Mapping[str, Any] | list[Any], *, place: str) -> str:
    try:
        return json.dumps(value, default=_refuse)
    except (TypeError, ValueError) as exc:
        raise StoreError(f"{place} cannot be stored: {exc}") from exc


def _refuse(value: object) -> object:
    raise TypeError(f"it holds {value!r} of type {type(value).__name__}; expected text, a number, true or false")


def _spell_out(text: str) -> str:
    r"""Text that UTF-8 and PostgreSQL can hold: half characters become ``\udc80``, NUL becomes ``\x00``."""
    return text.replace("\0", r"\x00").encode("utf-8", "backslashreplace").decode("utf-8")
