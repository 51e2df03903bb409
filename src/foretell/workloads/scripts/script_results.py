"""Reads what a script's process wrote, and says why there is nothing. The process is the user's: nothing is trusted."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from foretell.core.errors import MissingExtraError, NotFoundError, WorkloadError
from foretell.core.memory import MemoryTrace
from foretell.core.workload import Workload
from foretell.workloads.measurement_files import workload_from_record
from foretell.workloads.memory_records import trace_from_record
from foretell.workloads.scripts.command_checks import EXAMPLE, refuse_processes
from foretell.workloads.scripts.script_command import CommandOutcome
from foretell.workloads.scripts.script_facts import RecordedScript, facts_from_record
from foretell.workloads.scripts.written_files import list_files

_OF_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException")
_MESSAGE = 300  # characters of an error of the script's
_LINES = 8  # of the output that an error shows
_CALLS = 100_000_000  # operators of a step, at most


def build_recorded(command: Sequence[str], outcome: CommandOutcome, *, timeout_s: float) -> RecordedScript:
    """The recorded step of a command.

    Raises:
        WorkloadError: No step was recorded, or what was written is not one.
        NotFoundError: The script needs a file that does not exist.
        MissingExtraError: The script's Python has no PyTorch.
    """
    if outcome.result is None:
        raise explain_outcome(command, outcome, timeout_s=timeout_s)
    files = list_files(outcome.events)
    try:
        record = json.loads(outcome.result)
        workload = _read_workload(record)
        recorded = RecordedScript(
            workload=replace(workload, name=describe_command(command)),
            facts=facts_from_record(record["facts"]),
            command=tuple(command),
            waiting=tuple(map(str, record["waiting"])),
            memory=_read_memory(record, command),
            **files,
        )
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as exc:
        raise WorkloadError(
            f"what the process of {describe_command(command)} wrote is not a recorded step ({type(exc).__name__}); "
            "does the script change Foretell's own files or variables?"
        ) from exc
    if not recorded.workload.operators:
        raise WorkloadError(f"{describe_command(command)}: the first step has no operators")
    return recorded


def _read_workload(record: Mapping[str, Any]) -> Workload:
    workload = workload_from_record(record["workload"])
    count = len(workload.operators)
    if count > _CALLS or len(workload.layers) != count or len(workload.views) != count:
        raise ValueError("lists of different lengths")
    sources = tuple(tuple(int(place) for place in own) for own in record["sources"])
    if len(sources) != count or any(not 0 <= each < place for place, own in enumerate(sources) for each in own):
        raise ValueError("a source is not an earlier operator")
    if any(not 0 <= each.ready < count for each in workload.gradients):
        raise ValueError("a gradient is not ready in the step")
    return replace(workload, sources=sources)


def _read_memory(record: Mapping[str, Any], command: Sequence[str]) -> MemoryTrace | None:
    if record.get("memory") is None:
        return None
    return replace(trace_from_record(record["memory"]), name=describe_command(command))


def describe_command(command: Sequence[str]) -> str:
    """The script of a command, or the command itself."""
    scripts = [word for word in command if word.endswith(".py")]
    if scripts:
        return scripts[0]
    modules = [command[place + 1] for place, word in enumerate(command[:-1]) if word == "-m"]
    return modules[-1] if modules else shlex.join(command)


# Why there is no step


def explain_outcome(
    command: Sequence[str], outcome: CommandOutcome, *, timeout_s: float
) -> WorkloadError | NotFoundError | MissingExtraError:
    """The error for a command without a recorded step."""
    name, events = describe_command(command), outcome.events
    kinds = {event["kind"] for event in events}
    if "processes" in kinds:
        return refuse_processes(max(_find_counts(events), default=2))
    for event in events:
        if event["kind"] == "failure":
            return WorkloadError(f"{name}: the step could not be written: {event.get('message')}")
        if event["kind"] == "old-python":
            return WorkloadError(
                f"{event.get('python')} is Python {event.get('version')}; Foretell enters 3.11 or newer. "
                "Use an environment with a newer Python."
            )
    if outcome.code is None:
        return _explain_timeout(name, outcome, timeout_s)
    error = _find_error(events)
    if error is not None:
        return _explain_error(name, error, outcome)
    return _explain_end(name, kinds, outcome)


def _find_error(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The last error, but not that of a launcher, which only says that the script failed."""
    errors = [event for event in reversed(events) if event["kind"] == "error"]
    own = [event for event in errors if event.get("type") not in _OF_LAUNCHERS]
    return next(iter([*own, *errors]), None)


def _find_counts(events: Iterable[Mapping[str, Any]]) -> list[int]:
    return [event["count"] for event in events if event["kind"] == "processes" and isinstance(event.get("count"), int)]


def _explain_timeout(name: str, outcome: CommandOutcome, timeout_s: float) -> WorkloadError:
    place = f" It was at {outcome.place}." if outcome.place else ""
    return WorkloadError(
        f"{name} did not end a training step in {timeout_s:.0f} s and was ended.{place} "
        f"Allow more with --timeout, or let the script start with less data.{_show_files(outcome)}"
    )


def _explain_error(
    name: str, error: Mapping[str, Any], outcome: CommandOutcome
) -> WorkloadError | NotFoundError | MissingExtraError:
    where = f" at {error['place']}" if error.get("place") else ""
    if error.get("module") == "torch":
        python = next((event.get("python") for event in outcome.events if event["kind"] == "python"), "its Python")
        return MissingExtraError(
            f"{name}{where}: {python} has no PyTorch. Activate the environment in which you train, or write its Python "
            "in the command."
        )
    if error.get("missing"):
        missing = str(error["missing"])
        full = Path(missing).absolute()
        return NotFoundError(
            "file",
            missing,
            hint=f"{name}{where} needs it, as {full}. Run Foretell where you run the script, or pass the path."
            f"{_show_files(outcome)}",
        )
    message = str(error.get("message") or "").splitlines()
    said = [line.strip() for line in message if line.strip()]
    if error.get("type") in _OF_LAUNCHERS:  # the error itself is in the output
        said = [line.strip() for line in outcome.output if line.strip()][-1:]
    first = shorten(" ".join(said), _MESSAGE, placeholder="…").rstrip(".")
    return WorkloadError(
        f"{name} failed before its first training step ended{where}: {error.get('type')}: {first}. "
        f"If it does not fail without Foretell, please report it with the script.{_show_files(outcome)}"
    )


def _explain_end(name: str, kinds: set[str], outcome: CommandOutcome) -> WorkloadError:
    said = "".join(f"\n  {line}" for line in [line for line in outcome.output if line.strip()][-_LINES:])
    last = f" Its last lines:{said}" if said else ""
    places = [str(event["place"]) for event in outcome.events if event["kind"] == "exit" and event.get("place")]
    where = f" at {places[-1]}" if places else ""
    if "python" not in kinds:
        return WorkloadError(
            f"{name} ended (exit code {outcome.code}) without starting Python. Expected for example: {EXAMPLE}.{last}"
        )
    if outcome.code:
        return WorkloadError(
            f"{name} ended with exit code {outcome.code}{where} before its first training step."
            f"{_show_files(outcome)}{last}"
        )
    found = (
        "a step ends when an optimizer of torch.optim, or a class of it, has run after backward()"
        if "torch" in kinds
        else "it never imports PyTorch"
    )
    return WorkloadError(
        f"{name} ended{where} without a training step: {found}. Does it only evaluate, or need an argument to train?"
        f"{_show_files(outcome)}{last}"
    )


def _show_files(outcome: CommandOutcome) -> str:
    files = list_files(outcome.events)
    written = [*files["created"], *files["changed"]]
    if not written:
        return ""
    more = f" and {len(written) - 5} more" if len(written) > 5 else ""
    return f" Before that it wrote {', '.join(written[:5])}{more}."
