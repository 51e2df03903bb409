"""Builds the command, environment and folder of a run from an app and a configuration."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from foretell.apps._nodes import fill_placeholders, find_placeholders, parse_as, render_known, render_value
from foretell.core.app import App, Parameter, Value
from foretell.core.errors import Mistake, SpecError
from foretell.core.run import Allocation, Launch, RunSpec


def build_launch(app: App, spec: RunSpec, *, run_directory: Path) -> Launch:
    """Return the launch of a run. Its environment is that of the app, and a PARAM_name for every placeholder.

    Raises:
        SpecError: if the app has no command, or a placeholder has no value.
    """
    values = _build_values(app, spec, run_directory)
    try:
        return Launch(
            argv=_fill_words(app.command, values) if app.shell is None else ("bash", "-c", app.shell),
            environment=_build_environment(app, values),
            inherited=app.inherited,
            working_directory=fill_placeholders(app.working_directory, values),
            run_directory=values["run_dir"],
            setup=tuple(_fill_words(words, values) for words in app.setup),
            cleanup=tuple(_fill_words(words, values) for words in app.cleanup),
            time_limit_s=_find_time_limit(app, spec.allocation),
            log_limit_bytes=app.log_limit_bytes,
        )
    except KeyError as exc:
        placeholder = exc.args[0]
        expected = "memory in the allocation" if placeholder == "memory_mb" else render_known(placeholder, values)
        raise SpecError(
            app.name, [Mistake(place="command", found=f"{{{placeholder}}} without a value", expected=expected)]
        ) from None


def build_followed_launch(app: App, spec: RunSpec, *, run_directory: Path) -> Launch:
    """Return what is needed of a run that was started before: its folder and its limits, without a command."""
    return Launch(
        argv=(),
        run_directory=str(run_directory.absolute()),
        time_limit_s=_find_time_limit(app, spec.allocation),
        log_limit_bytes=app.log_limit_bytes,
    )


def _build_values(app: App, spec: RunSpec, run_directory: Path) -> dict[str, str]:
    if not app.command and app.shell is None:
        expected = "an app file with a command; 'foretell init' writes one"
        raise SpecError(app.name, [Mistake(place="command", found="none: its runs were imported", expected=expected)])
    allocation = spec.allocation
    values = {name: render_value(value) for name, value in spec.parameters.items()}
    values |= {"cores": str(allocation.cores), "gpus": str(allocation.gpus), "nodes": str(allocation.nodes)}
    values |= {"run_dir": str(run_directory.absolute()), "app_dir": str(Path(app.directory).absolute())}
    if allocation.memory_bytes is not None:
        values["memory_mb"] = str(allocation.memory_bytes // 2**20)
    return values


def _fill_words(words: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(fill_placeholders(word, values) for word in words)


def _build_environment(app: App, values: Mapping[str, str]) -> dict[str, str]:
    own = {name: fill_placeholders(word, values) for name, word in app.environment.items()}
    return own | {f"PARAM_{name}": value for name, value in values.items()}


def _find_time_limit(app: App, allocation: Allocation) -> float | None:
    limits = [limit for limit in (app.time_limit_s, allocation.walltime_s) if limit is not None]
    return min(limits, default=None)


def parse_value(parameter: Parameter, text: str) -> Value:
    """Return the value of a text, by the parameter's type.

    Raises:
        SpecError: if it is none of that type.
    """
    try:
        return parse_as(parameter.type, text)
    except ValueError as exc:
        mistake = Mistake(place=parameter.name, found=repr(text), expected=str(exc))
        raise SpecError("parameter", [mistake]) from None


def build_spec(app: App, settings: Mapping[str, str | Value], *, allocation: Allocation) -> RunSpec:
    """Return the full-scale run of a configuration; a parameter with only one full-scale value may be omitted.

    Raises:
        SpecError: with every unknown name, missing name and unfit value.
    """
    known = app.parameter_names()
    mistakes = [
        Mistake(place=name, found="an unknown parameter", expected=render_known(name, known))
        for name in settings
        if name not in known
    ]
    values: dict[str, Value] = {}
    for parameter in app.parameters:
        usual = parameter.full_scale.values
        if parameter.name not in settings and len(usual) == 1:
            values[parameter.name] = usual[0]
            continue
        if parameter.name not in settings:
            mistakes.append(Mistake(place=parameter.name, found="no value", expected=f"one of type {parameter.type}"))
            continue
        try:
            values[parameter.name] = parse_value(parameter, render_value(settings[parameter.name]))
        except SpecError as exc:
            mistakes.extend(exc.mistakes)
    if mistakes:
        raise SpecError(f"configuration of {app.name}", mistakes)
    return RunSpec(app=app.name, parameters=values, allocation=allocation, version=app.version)


def find_program_problem(app: App) -> str | None:
    """Return why the app's program cannot be started here; ``None`` if it can, or if that depends on the run."""
    if not app.command and app.shell is None:
        return None
    word = app.command[0] if app.shell is None else "bash"
    if set(find_placeholders(word)) - {"app_dir"}:
        return None
    program = fill_placeholders(word, {"app_dir": str(Path(app.directory).absolute())})
    if shutil.which(program):
        return None
    if Path(program).is_file():
        return f"the program {program!r} is not executable; run 'chmod +x' on it, or start it by its interpreter"
    return f"the program {program!r} was not found; install it, or load its module before running"
