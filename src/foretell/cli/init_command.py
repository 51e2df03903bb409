"""The command ``foretell init``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import APP_FILE, JsonOption
from foretell.cli._output import note, say, show_json, write_text
from foretell.core.errors import Mistake, OutputError, SpecError

if TYPE_CHECKING:
    from foretell.apps.command_line import CommandLine

EXAMPLES = "Example: foretell init --command 'python train.py --epochs 100 --batch-size 64'"


def init(
    command: Annotated[str | None, typer.Option(help="The command as you would type it at full scale.")] = None,
    name: Annotated[str | None, typer.Option(help="The app's name; default: the script's.")] = None,
    directory: Annotated[Path, typer.Option(help="Where to write foretell.yaml.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented foretell.yaml for a command."""
    from foretell.apps.command_resources import read_resources
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
    note("Next: look it over, then 'foretell check' and 'foretell generate --dry-run'.")


def _ask() -> str:
    if not sys.stdin.isatty():
        expected = "a command, for example --command 'python train.py --epochs 100'"
        raise SpecError("options", [Mistake(place="--command", found="nothing", expected=expected)])
    return str(typer.prompt("The command, as you would type it at full scale"))


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
