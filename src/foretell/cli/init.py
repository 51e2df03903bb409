"""The command ``foretell init``."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import APP_FILE, JsonOption, note, show_json, write_text
from foretell.errors import Mistake, OutputError, SpecError

EXAMPLES = "Example: foretell init --command 'python train.py --epochs 100 --batch-size 64'"


def init(
    command: Annotated[str | None, typer.Option(help="The command as you would type it at full scale.")] = None,
    name: Annotated[str | None, typer.Option(help="The app's name; default: the script's.")] = None,
    directory: Annotated[Path, typer.Option(help="Where to write foretell.yaml.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented foretell.yaml for a command."""
    from foretell.apps.template import render_template, suggest_name

    path = directory / APP_FILE
    if path.exists() and not force:
        raise OutputError(f"{path} exists already; pass --force to replace it")
    words = _split(command if command is not None else _ask())
    chosen = name or suggest_name(words)
    write_text(path, render_template(words, name=chosen, directory=directory))
    if as_json:
        show_json({"app": chosen, "file": str(path)})
        return
    typer.echo(f"Wrote {path}.")
    note("Next: look it over, then 'foretell check' and 'foretell generate --dry-run'.")


def _ask() -> str:
    if not sys.stdin.isatty():
        expected = "a command, for example --command 'python train.py --epochs 100'"
        raise SpecError("options", [Mistake(place="--command", found="nothing", expected=expected)])
    return str(typer.prompt("The command, as you would type it at full scale"))


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as exc:
        raise SpecError(
            "options", [Mistake(place="--command", found=repr(command), expected=f"words ({exc})")]
        ) from None
    if not words:
        raise SpecError("options", [Mistake(place="--command", found=repr(command), expected="at least one word")])
    return words
