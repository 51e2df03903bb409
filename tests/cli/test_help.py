"""Help that helps: an example with every command, quickly, and within the terminal."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from foretell.cli._click import summarise
from foretell.cli.main import COMMANDS as TABLE
from foretell.cli.main import app


def _list_commands(command: Any, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [words]
    context = click.Context(command)
    inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return [found for name, child in inner.items() for found in _list_commands(child, (*words, name))]


COMMANDS = _list_commands(app)


def test_every_command_is_found() -> None:
    assert len(COMMANDS) == 40
    assert ("runs", "import") in COMMANDS


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_an_example_and_json(words: Any, tmp_path: Path, foretell: Callable[..., Any]) -> None:
    outcome = foretell(*words, "--help", folder=tmp_path)
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert f"foretell {' '.join(words)}" in text.partition("Example")[2]
    assert "--json" in text
    assert max(map(len, outcome.out.splitlines())) <= 100


@pytest.mark.parametrize("name", TABLE)
def test_the_table_has_the_summary_of_each_command(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert summarise(command) == TABLE[name].summary


def test_root_help_imports_no_command() -> None:
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    code += "sys.argv = ['foretell', '--help']; from foretell.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "recommend" in done.stdout
    loaded = set(done.stderr.split())
    assert not {name for name in loaded if name.startswith("foretell.cli.") and "_command" in name}
    assert not loaded & {"pygments", "rich.markdown", "markdown_it", "pydantic", "numpy"}


def test_version(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    assert foretell("--version", folder=tmp_path).out.startswith("foretell ")


@pytest.mark.parametrize("module", ["foretell", "foretell.cli.main"])
def test_heavy_libraries_wait_until_they_are_needed(module: str) -> None:
    heavy = {"numpy", "pandas", "sklearn", "scipy", "sqlalchemy", "matplotlib", "jinja2", "skops", "torch"}
    code = f"import sys, {module}; print(*(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
