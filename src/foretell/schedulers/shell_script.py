"""Renders a launch as a shell script that users can read, keep and run."""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from foretell.core.errors import RunnerError
from foretell.core.run import RUN_DIRECTORY, Allocation, Launch
from foretell.core.units import render_bytes, render_duration

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRACE_S = 10
# Bash reads these as syntax in front of a command, but shlex.quote does not quote them.
_RESERVED = {
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select", "then",
    "time", "until", "while",
}  # fmt: skip


def render_shell_script(launch: Launch, *, allocation: Allocation) -> str:
    """Return a script for this machine; ``timeout`` ends its command at the requested walltime.

    Raises:
        RunnerError: if an argument or a variable cannot be written in a shell script.
    """
    command = launch.argv
    if allocation.walltime_s is not None:
        command = ("timeout", f"--kill-after={_GRACE_S}s", f"{math.ceil(allocation.walltime_s)}s", *command)
    lines = ["#!/bin/bash", f"# {_describe(allocation)}", "", *render_body(launch, command=command)]
    return "\n".join(lines) + "\n"


def render_body(launch: Launch, *, command: Sequence[str]) -> Iterator[str]:
    """Yield the lines after a script's header: environment, folders, setup, command, and cleanup in any case.

    Raises:
        RunnerError: if an argument or a variable cannot be written in a shell script.
    """
    yield "set -e"  # not -u: the scripts of modules and conda fail with it
    yield ""
    for name, value in {**launch.environment, RUN_DIRECTORY: launch.run_directory}.items():
        yield f"export {_check_variable(name)}={quote(value)}"
    yield f"mkdir -p -- {quote(launch.run_directory)}"
    yield f"cd -- {quote(launch.working_directory)}"
    if launch.cleanup:
        yield from ("", "cleanup() {", *(f"  {render_words(argv)} || true" for argv in launch.cleanup), "}")
        yield "trap cleanup EXIT"
    if launch.setup:
        yield from ("", *map(render_words, launch.setup))
    yield ""
    yield render_words(command)


def render_words(words: Sequence[str]) -> str:
    """Return arguments quoted for a shell, the first of them as a command.

    Raises:
        RunnerError: if there are none, or one contains a NUL character.
    """
    if not words:
        raise RunnerError("an empty command cannot be written in a script; give at least one argument")
    return " ".join([_quote_command(words[0]), *_quote_all(words[1:])])


def quote(word: str) -> str:
    """Return an argument quoted for a shell.

    Raises:
        RunnerError: if it contains a NUL character.
    """
    if "\0" in word:
        raise RunnerError(f"{word!r} contains a NUL character, which no command can receive; remove it")
    return shlex.quote(word)


def _quote_command(word: str) -> str:
    plain = quote(word)
    return f"'{word}'" if plain == word and ("=" in word or word in _RESERVED) else plain


def _quote_all(words: Iterable[str]) -> Iterator[str]:
    return map(quote, words)


def _check_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise RunnerError(
            f"a shell cannot export a variable named {name!r}; use letters, digits and underscores, no digit first"
        )
    return name


def _describe(allocation: Allocation) -> str:
    parts = [f"{allocation.cores} cores" if allocation.cores != 1 else "1 core"]
    if allocation.memory_bytes is not None:
        parts.append(f"{render_bytes(allocation.memory_bytes)} of memory")
    if allocation.gpus:
        parts.append(f"{allocation.gpus} GPUs" if allocation.gpus != 1 else "1 GPU")
    if allocation.walltime_s is not None:
        parts.append(f"at most {render_duration(allocation.walltime_s)}")
    return "Needs " + ", ".join(parts)
