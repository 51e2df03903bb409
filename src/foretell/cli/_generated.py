"""Files that Foretell writes and may write again: each carries a mark, so that a user's own work is never replaced."""

import hashlib
import re
from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import write_text
from foretell.core.errors import OutputError

ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace the file even if Foretell did not write it, or it was edited since.")
]

_MARK = re.compile(r"Written by foretell, checksum ([0-9a-f]{12})\b")
_COMMENTS = {".html": "<!-- {} -->"}
_MARKED_LINES = 3  # the mark is on one of the first lines; more need not be searched


def write_generated(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file with its mark after the first line (``#!/bin/bash``, ``<!doctype html>``).

    Raises:
        OutputError: if a file is there that Foretell did not write or that was edited since, or it cannot be written.
    """
    if not force and not _is_replaceable(path):
        raise OutputError(
            f"{path} was not written: the file that is there is not Foretell's, or was edited since Foretell wrote it; "
            "choose another name with --output, or replace it with --force"
        )
    first, newline, rest = text.partition("\n")
    mark = _COMMENTS.get(path.suffix, "# {}").format(f"Written by foretell, checksum {_checksum(text)}")
    write_text(path, f"{first}{newline}{mark}\n{rest}")


def _is_replaceable(path: Path) -> bool:
    """Whether nothing of the user's is lost: no file, an empty one, a device, or one of ours as we wrote it."""
    if not path.is_file():
        return True
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
    except (OSError, ValueError):  # not readable, or not text: not ours
        return False
    marks = [(number, found[1]) for number, line in enumerate(lines[:_MARKED_LINES]) if (found := _MARK.search(line))]
    if not marks:
        return not lines
    number, checksum = marks[0]
    return _checksum("".join(lines[:number] + lines[number + 1 :])) == checksum


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
