"""The commands ``foretell init`` and ``foretell check``."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli._click import argument, command
from foretell.cli._options import PATH, json_option
from foretell.cli._output import note, say, show_json, write_text
from foretell.cli._places import APP_FILE, find_app_file
from foretell.core.errors import Mistake, NotFoundError, OutputError, SpecError

if TYPE_CHECKING:
    from foretell.apps.api import AppCheck
    from foretell.apps.command_line import CommandLine


@command(examples=["foretell init --command 'python train.py --epochs 100 --batch-size 64'"])
@click.option("--command", help="The command, as you would type it at full scale.")
@click.option("--name", help="The app's name; default: that of the script.")
@click.option("--directory", type=PATH, default=Path(), help="The folder for foretell.yaml.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
def init(
    command: str | None,
    name: str | None,
    directory: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Write a commented foretell.yaml for a command."""
    from foretell.apps.command_line import read_resources
    from foretell.apps.template import render_template, suggest_name

    path = directory / APP_FILE
    if path.exists() and not force:
        raise OutputError(f"{path} exists already; pass --force to replace it")
    typed = _read(command if command is not None else _ask())
    chosen = name or suggest_name(typed)
    write_text(path, render_template(typed, name=chosen, directory=directory))
    notes = (*typed.notes, *read_resources(typed).notes)
    if as_json:
        show_json({"app": chosen, "file": str(path), "notes": notes})
        return
    say(f"Wrote {path}.")
    for one in notes:
        note(f"Note: {one}.")
    if typed.shell:
        note("Note: this needs a shell (a pipe, a variable, or input from a file), so it is written as shell.")
    note("Next: check it, then run 'foretell check' and 'foretell generate --dry-run'.")


def _ask() -> str:
    if not sys.stdin.isatty():
        expected = "a command, for example --command 'python train.py --epochs 100'"
        raise SpecError("options", [Mistake(place="--command", found="nothing", expected=expected)])
    return str(click.prompt("The command, as you would type it at full scale"))


def _read(command: str) -> "CommandLine":
    from foretell.apps.command_line import read_command_line

    try:
        typed = read_command_line(command)
    except ValueError as exc:
        mistake = Mistake(place="--command", found=repr(command), expected=f"a command ({exc})")
        raise SpecError("options", [mistake]) from None
    if not typed.words and not typed.shell:
        raise SpecError("options", [Mistake(place="--command", found=repr(command), expected="at least one word")])
    return typed


@command(examples=["foretell check examples/fcnet/foretell.yaml"])
@argument("file", required=False, type=PATH, help="The app file; default: foretell.yaml.")
@json_option
def check(
    file: Path | None,
    as_json: bool,
) -> None:
    """Report all mistakes in an app file, each with its line, and count its runs."""
    from foretell.apps.api import check_app
    from foretell.apps.app_file import load_app

    path = file or find_app_file()
    if path is None:
        raise NotFoundError("file", APP_FILE, hint="Write one with 'foretell init'.")
    try:
        app = load_app(path)
    except SpecError as exc:
        if not as_json:
            raise
        show_json({"ok": False, "file": str(path), "mistakes": exc.mistakes})
        raise click.exceptions.Exit(1) from None
    found = check_app(app)
    if as_json:
        show_json({"ok": True, "file": str(path), **asdict(found)})
        return
    excluded = f"; {found.excluded_runs:,} excluded by where" if found.excluded_runs else ""
    runs = f"{found.scaled_down_runs:,} scaled-down and {found.full_scale_runs:,} full-scale runs{excluded}"
    say(f"{path}: app {app.name!r} is fine; {runs}.")
    for warning in _list_warnings(found):
        note(f"Warning: {warning}")


def _list_warnings(found: "AppCheck") -> Iterator[str]:
    if found.warning:
        yield found.warning
    for obstacle, runs in found.impossible_here.items():
        yield (
            f"{runs:,} of them cannot be made on this machine ({obstacle.replace('it asks', 'asked', 1)}): 'foretell "
            "generate' will refuse. Ask for less under resources, or make them with --runner slurm."
        )
