"""Our values to and from rows. Runs are built field by field, because a store may hold a hundred thousand of them."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, wraps
from typing import Any, TypeVar

from foretell.core.app import App, Scale, Value
from foretell.core.batch import Batch
from foretell.core.errors import StoreError
from foretell.core.model_card import ModelCard, ModelRecord
from foretell.core.run import Allocation, Claim, Machine, Owner, Run, RunSpec, State, Usage
from foretell.core.serialization import from_record, to_record

Row = dict[str, Any]
T = TypeVar("T")

_FIGURES = tuple(field.name for field in dataclasses.fields(Usage))
_SPEC = ("app", "scale", "repetition", "parameters", "allocation", "version")
_OUTCOME = (
    "state", "phases", "machine", "exit_code", "log_tail", "reason", "started_at", "ended_at", "source", "job_id",
    "allocated",
)  # fmt: skip
_OWNER = ("owner_token", "owner_hostname", "owner_boot_id", "owner_pid", "owner_started_at", "heartbeat_at")
RUN_COLUMNS = _SPEC + _FIGURES + _OUTCOME
CLAIM_COLUMNS = _SPEC + _OWNER

_NO_USAGE: Row = dict.fromkeys(_FIGURES)
_NO_OWNER: Row = dict.fromkeys(_OWNER)
_LARGEST = 2**63 - 1
_STATES = {state.value: state for state in State}
_SCALES = {scale.value: scale for scale in Scale}
_NUMBERS = (int, float)
_VALUES = (bool, int, float, str)
_ANY_ALLOCATION = Allocation()
_ANY_MACHINE = Machine()


def _from_store(what: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """What a row holds may be anybody's: one that cannot be read is an error that says so."""

    def wrap(build: Callable[..., T]) -> Callable[..., T]:
        @wraps(build)
        def build_checked(row: Any) -> T:
            try:
                return build(row)
            except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as exc:
                raise StoreError(
                    f"the store holds {what} that Foretell did not write ({exc}); "
                    "restore a copy of the store, or remove that row"
                ) from exc

        return build_checked

    return wrap


def build_app_row(app: App) -> Row:
    return {"name": check_name(app.name), "description": _render_json(to_record(app), place=f"app {app.name!r}")}


@_from_store("an app")
def build_app(description: str) -> App:
    return from_record(App, json.loads(description))


def build_run_row(run: Run) -> Row:
    row = _build_spec_row(run.spec)
    return row | _build_outcome_row(run, place=f"run {row['id']}")


def build_finish_row(run: Run) -> Row:
    """What changes of a claimed run when it ends."""
    return _build_outcome_row(run, place=f"run {run.id}") | _NO_OWNER


def build_claim_row(spec: RunSpec, owner: Owner, *, now: datetime) -> Row:
    return build_run_row(Run(spec=spec, state=State.RUNNING)) | {
        "owner_token": owner.token,
        "owner_hostname": owner.hostname,
        "owner_boot_id": owner.boot_id,
        "owner_pid": owner.pid,
        "owner_started_at": owner.started_at,
        "heartbeat_at": now,
    }


def build_batch_row(batch: Batch) -> Row:
    description = to_record(batch)
    del description["job_id"]
    place = f"batch {batch.id}"
    return {
        "id": batch.id,
        "app": check_name(batch.app),
        "job_id": batch.job_id,
        "description": _render_json(description, place=place),
    }


@_from_store("a batch")
def build_batch(row: Sequence[Any]) -> Batch:
    job_id, description = row
    return dataclasses.replace(from_record(Batch, json.loads(description)), job_id=job_id)


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


@_from_store("a model")
def build_model(row: Sequence[Any]) -> ModelRecord:
    """From its app, card, extra, moment and blob."""
    app, card, extra, created_at, blob = row
    if not isinstance(blob, bytes):  # SQLite takes anything
        raise TypeError("a model that is not bytes")
    return ModelRecord(
        app=app,
        card=from_record(ModelCard, json.loads(card)),
        blob=blob,
        run_ids=(),
        created_at=_get_moment(created_at),
        extra=_read_mapping(extra, (str,)),
    )


@_from_store("a run")
def build_run(row: Sequence[Any]) -> Run:
    """From a row of RUN_COLUMNS; by position, because names cost as much as all the rest."""
    outcome = len(_SPEC) + len(_FIGURES)
    state, phases, machine, exit_code, log_tail, reason, started_at, ended_at, source, job_id, given = row[outcome:]
    if not all(isinstance(text, str) for text in (log_tail, reason, source, job_id or "")):  # SQLite takes anything
        raise TypeError("a log, a reason, a source or a job id that is no text")
    return Run(
        spec=_build_spec(row[: len(_SPEC)]),
        state=_STATES[state],
        usage=_build_usage(row[len(_SPEC) : outcome]),
        phases=_read_mapping(phases, _NUMBERS),
        machine=_build_machine(machine),
        exit_code=exit_code,
        log_tail=log_tail,
        reason=reason,
        started_at=_find_moment(started_at),
        ended_at=_find_moment(ended_at),
        source=source,
        job_id=job_id or "",
        allocated=None if given is None else _build_allocation(given),
    )


@_from_store("a text")
def read_text(value: Any) -> str:
    if not isinstance(value, str):  # SQLite takes anything
        raise TypeError(f"found {value!r}")
    return value


@_from_store("a state")
def read_state(value: Any) -> State:
    return _STATES[value]


@_from_store("a count")
def read_count(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"found {value!r}")
    return value


@_from_store("a list of runs")
def read_run_ids(text: Any) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text else ()


def _find_moment(value: Any) -> datetime | None:
    return None if value is None else _get_moment(value)


def _get_moment(value: Any) -> datetime:
    """A moment; SQLite has no type for it and no time zones, so what it keeps is text in UTC."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        raise TypeError(f"{value!r} is not a moment")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@_from_store("a run")
def build_claim(row: Sequence[Any]) -> Claim:
    """From a row of CLAIM_COLUMNS."""
    token, hostname, boot_id, pid, started_at, heartbeat_at = row[len(_SPEC) :]
    owner = Owner(token=token, hostname=hostname, boot_id=boot_id, pid=pid, started_at=started_at)
    return Claim(spec=_build_spec(row[: len(_SPEC)]), owner=owner, heartbeat_at=_get_moment(heartbeat_at))


def check_name(name: str) -> str:
    """The name, if every database can hold it.

    Raises:
        StoreError: if not.
    """
    if _spell_out(name) != name:
        raise StoreError(f"the app name {name!r} holds characters that cannot be stored; use letters, digits, - and _")
    return name


def render_parameters(parameters: Mapping[str, Value]) -> str:
    """As they are kept."""
    return _render_json(dict(parameters), place="a configuration")


def _build_spec_row(spec: RunSpec) -> Row:
    run_id = spec.id
    place = f"run {run_id}"
    return {
        "id": run_id,
        "app": check_name(spec.app),
        "scale": spec.scale.value,
        "repetition": spec.repetition,
        "parameters": _render_json(dict(spec.parameters), place=place),
        "allocation": _render_changes(spec.allocation, _ANY_ALLOCATION, place=place),
        "version": spec.version,
    }


def _build_outcome_row(run: Run, *, place: str) -> Row:
    return _build_usage_row(run.usage, place=place) | {
        "state": run.state.value,
        "phases": _render_json(dict(run.phases), place=place),
        "machine": _render_changes(run.machine, _ANY_MACHINE, place=place),
        "exit_code": run.exit_code,
        "log_tail": _spell_out(run.log_tail),
        "reason": _spell_out(run.reason),
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "source": _spell_out(run.source),
        "job_id": _spell_out(run.job_id) or None,
        "allocated": run.allocated and _render_changes(run.allocated, _ANY_ALLOCATION, place=place),
    }


def _build_usage_row(usage: Usage | None, *, place: str) -> Row:
    if usage is None:
        return _NO_USAGE
    figures = {name: _check_figure(getattr(usage, name), name=name, place=place) for name in _FIGURES}
    if figures["elapsed_s"] is None:
        raise StoreError(f"{place}: elapsed_s is {usage.elapsed_s}; expected a number of seconds")
    return figures


def _check_figure(value: int | float | None, *, name: str, place: str) -> int | float | None:
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise StoreError(f"{place}: {name} is too large ({value.bit_length()} bits); expected less than 2^63")
    return value if value is None or math.isfinite(value) else None


def _build_spec(row: Sequence[Any]) -> RunSpec:
    app, scale, repetition, parameters, allocation, version = row
    if not (isinstance(repetition, int) and isinstance(version, int)):  # a run's folder is named by them
        raise TypeError(f"repetition {repetition!r} or version {version!r} is no number")
    return RunSpec(
        app=app,
        parameters=_read_mapping(parameters, _VALUES),
        allocation=_build_allocation(allocation),
        scale=_SCALES[scale],
        repetition=repetition,
        version=version,
    )


def _build_usage(figures: Sequence[Any]) -> Usage | None:
    if not all(figure is None or isinstance(figure, _NUMBERS) for figure in figures):
        raise TypeError(f"found {figures!r}")
    return None if figures[0] is None else Usage(**dict(zip(_FIGURES, figures, strict=True)))


def _read_mapping(text: str, types: tuple[type, ...]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    if not all(isinstance(value, types) for value in found.values()):
        raise TypeError(f"found {text!r}")
    return found


@lru_cache(maxsize=1024)
def _build_allocation(text: str) -> Allocation:
    return from_record(Allocation, json.loads(text))


@lru_cache(maxsize=1024)
def _build_machine(text: str) -> Machine:
    return from_record(Machine, json.loads(text))


def _render_changes(value: Allocation | Machine, default: Allocation | Machine, *, place: str) -> str:
    if value == default:
        return "{}"
    fields = {name: getattr(value, name) for name in value.__slots__}
    return _render_json({name: given for name, given in fields.items() if given != getattr(default, name)}, place=place)


def _render_json(value: Mapping[str, Any] | list[Any], *, place: str) -> str:
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError) as exc:
        raise StoreError(f"{place} cannot be stored: {exc}") from exc


def _refuse(value: object) -> object:
    raise TypeError(f"it holds {value!r} of type {type(value).__name__}; expected text, a number, true or false")


_ENCODER = json.JSONEncoder(default=_refuse)


def _spell_out(text: str) -> str:
    r"""Text that UTF-8 and PostgreSQL can hold: half characters become ``\udc80``, NUL becomes ``\x00``."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", r"\x00").encode("utf-8", "backslashreplace").decode("utf-8")
