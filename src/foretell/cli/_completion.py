"""Completion of commands and options in bash, zsh and fish."""

import os
from pathlib import Path
from typing import Any

import click

from foretell.core.errors import NotFoundError

_NAME = "foretell"
_VARIABLE = "_FORETELL_COMPLETE"
_ZSH_LINE = "fpath+=~/.zfunc; autoload -Uz compinit; compinit"


def show_completion(ctx: click.Context, _param: click.Parameter, asked: Any) -> None:
    """Print the completion script for the user's shell, and exit."""
    if asked and not ctx.resilient_parsing:
        click.echo(_build_script(ctx, _find_shell()))
        ctx.exit()


def install_completion(ctx: click.Context, _param: click.Parameter, asked: Any) -> None:
    """Install the completion script where the user's shell finds it, and exit."""
    if asked and not ctx.resilient_parsing:
        shell = _find_shell()
        path = _install(shell, _build_script(ctx, shell))
        click.echo(f"Completion for {shell} was written to {path}. It works in new shells.")
        ctx.exit()


def _find_shell() -> str:
    from click.shell_completion import get_completion_class

    name = Path(os.environ.get("SHELL", "")).name
    if not name or get_completion_class(name) is None:
        raise NotFoundError("shell", name, known=("bash", "fish", "zsh"), hint="SHELL names the shell.")
    return name


def _build_script(ctx: click.Context, shell: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(ctx.find_root().command, {}, _NAME, _VARIABLE).source()


def _install(shell: str, script: str) -> Path:
    home = Path.home()
    places = {
        "bash": home / ".bash_completions" / f"{_NAME}.sh",
        "zsh": home / ".zfunc" / f"_{_NAME}",
        "fish": home / ".config" / "fish" / "completions" / f"{_NAME}.fish",
    }
    path = places[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{script}\n", "utf-8")
    if shell == "bash":
        _add_line(home / ".bashrc", f"source '{path}'")
    elif shell == "zsh":
        _add_line(home / ".zshrc", _ZSH_LINE)
    return path


def _add_line(path: Path, line: str) -> None:
    text = path.read_text("utf-8") if path.is_file() else ""
    if line not in text:
        path.write_text(f"{text.rstrip()}\n{line}\n".lstrip("\n"), "utf-8")
