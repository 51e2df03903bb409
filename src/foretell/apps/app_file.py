"""Reads an app file and reports all of its mistakes together."""

import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from foretell.apps._nodes import LARGEST_FILE, RUN_FOLDER, Entry, compose_entry, parse_count
from foretell.apps._parameters import read_parameters, read_resources
from foretell.apps._sections import CommandReader, read_estimate, read_per, read_phases, read_runner, read_submission
from foretell.apps.sweep import count_runs, has_allowed
from foretell.apps.where import read_where
from foretell.core.app import LOG_LIMIT_BYTES, App
from foretell.core.errors import Mistake, NotFoundError, SpecError
from foretell.core.units import parse_bytes, parse_duration

MOST_RUNS = 1_000_000
_LEAST_LOG = 64 << 10

_KEYS = (
    "name", "command", "shell", "parameters", "resources", "environment", "working_directory",
    "setup", "cleanup", "repetitions", "time_limit", "log_limit", "phases", "estimate", "per", "where",
    "runner", "slurm",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def load_app(path: str | Path) -> App:
    """Return the app that a file describes.

    Raises:
        NotFoundError: if there is no such file.
        SpecError: with every mistake in it.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE + 1).decode()
    except FileNotFoundError:
        raise NotFoundError("app file", str(path), hint="'foretell init' writes one.") from None
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path, or bytes that are not UTF-8
        raise SpecError(str(path), [Mistake(place="file", found=str(exc), expected="a readable text file")]) from exc
    return parse_app(text, source=str(path), directory=Path(path).parent)


def parse_app(text: str, *, source: str, directory: Path) -> App:
    """Return the app that a text describes; ``directory`` is the value of ``{app_dir}``.

    Raises:
        SpecError: with every mistake in it.
    """
    mistakes: list[Mistake] = []
    if len(text) > LARGEST_FILE:
        expected = f"at most {LARGEST_FILE // 1024} KB; ranges are shorter than lists"
        raise SpecError(source, [Mistake(place="file", found="a larger file", expected=expected)])
    root = compose_entry(text, mistakes)
    app = None if root is None else _read_app(root, directory.resolve())
    if app is None or mistakes:
        raise SpecError(source, sorted(mistakes, key=lambda mistake: mistake.line or 0))
    return app


def _read_app(root: Entry, directory: Path) -> App | None:
    fields = root.read_fields(_KEYS, expected="a mapping with name, command and parameters")
    if not root.is_mapping:
        return None
    described = fields["parameters"].read_fields() if "parameters" in fields else {}
    parameters = read_parameters(described)
    scaled_down, full_scale = read_resources(fields.get("resources"))
    phases = read_phases(fields.get("phases"), parameters=parameters)
    has_memory = (scaled_down.memory_bytes, full_scale.memory_bytes) != ((None,), (None,))
    reader = CommandReader(parameters=parameters, has_memory=has_memory, directory=directory)
    environment, inherited = reader.read_environment(fields["environment"]) if "environment" in fields else ({}, ())
    app = App(
        name=_read_name(root, fields.get("name")),
        command=reader.read_words(fields["command"]) if "command" in fields else (),
        shell=reader.read_shell(fields["shell"]) if "shell" in fields else None,
        directory=str(directory),
        working_directory=_read_working_directory(fields, reader),
        parameters=parameters,
        scaled_down_resources=scaled_down,
        full_scale_resources=full_scale,
        environment=environment,
        inherited=inherited,
        setup=reader.read_steps(fields["setup"]) if "setup" in fields else (),
        cleanup=reader.read_steps(fields["cleanup"]) if "cleanup" in fields else (),
        repetitions=_read_repetitions(fields.get("repetitions")),
        time_limit_s=fields["time_limit"].read(_parse_time_limit) if "time_limit" in fields else None,
        log_limit_bytes=_read_log_limit(fields.get("log_limit")),
        phases=phases,
        estimate=read_estimate(fields.get("estimate"), phases=phases, parameters=parameters),
        per=read_per(fields.get("per"), parameters=parameters),
        where=read_where(fields.get("where"), parameters, has_memory=has_memory),
        runner=read_runner(fields.get("runner")),
        submission=read_submission(fields.get("slurm")),
    )
    _check_command(root, fields)
    if "command" in fields and not any(mistake.place.startswith("command") for mistake in root.mistakes):
        _check_unused(described, reader.used)
    if app.working_directory.startswith(RUN_FOLDER):
        _check_files(fields, reader)
    _check_size(fields, root, app)
    return app


def _read_name(root: Entry, entry: Entry | None) -> str:
    if entry is None:
        root.note("name: a word for this app", found="no name")
        return ""
    name = entry.read_text(expected="a name")
    if name is not None and not _NAME.fullmatch(name):
        entry.note("at most 100 letters, digits, '.', '_' and '-', starting with a letter or digit")
    return name or ""


def _read_working_directory(fields: dict[str, Entry], reader: CommandReader) -> str:
    entry = fields.get("working_directory")
    return RUN_FOLDER if entry is None else reader.read_working_directory(entry)


def _read_repetitions(entry: Entry | None) -> int:
    count = None if entry is None else entry.read(partial(parse_count, lowest=1, highest=MOST_RUNS))
    return count or 1


def _parse_time_limit(text: str) -> float:
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        raise ValueError("a duration with its unit, such as 90s, 10m, 1h30m or 02:30:00") from None


def _read_log_limit(entry: Entry | None) -> int:
    return LOG_LIMIT_BYTES if entry is None else entry.read(_parse_log_limit) or LOG_LIMIT_BYTES


def _parse_log_limit(text: str) -> int:
    try:
        size = parse_bytes(text)
    except (ValueError, OverflowError):
        size = 0
    if size < _LEAST_LOG:
        raise ValueError("a size of at least 64KB, such as 64MB or 1GB")
    return size


def _check_command(root: Entry, fields: Mapping[str, Entry]) -> None:
    if ("command" in fields) == ("shell" in fields):
        found = "both command and shell" if "command" in fields else "neither command nor shell"
        fields.get("shell", root).note("one of the two", found=found)


def _check_unused(parameters: Mapping[str, Entry], used: Collection[str]) -> None:
    for name, entry in parameters.items():
        if name not in used:
            entry.note(f'"{{{name}}}" in command, environment or setup', found="a parameter without a placeholder")


def _check_files(fields: Mapping[str, Entry], reader: CommandReader) -> None:
    if "command" in fields:
        reader.check_files(fields["command"])
    setup = fields.get("setup")
    if setup is not None and setup.is_list:
        for number, step in enumerate(setup.node.value, start=1):
            reader.check_files(Entry(step, f"{setup.place}, item {number}", setup.mistakes))


def _check_size(fields: Mapping[str, Entry], root: Entry, app: App) -> None:
    runs = count_runs(app)
    if runs > MOST_RUNS:
        expected = f"at most {MOST_RUNS:,}: fewer values or repetitions"
        fields.get("parameters", root).note(expected, found=f"a sweep of {runs:,} runs")
    elif "where" in fields and not root.mistakes and not has_allowed(app):
        fields["where"].note("conditions that some of the values meet", found="conditions that exclude every run")
