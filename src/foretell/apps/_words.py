"""Words of a command: their holes, and the files they name."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from foretell.entities.app import RESOURCES

RESERVED_HOLES = ("cores", "memory_mb", "gpus", "nodes", "run_dir", "app_dir")
RUN_FOLDER = "{run_dir}"
RESERVED_NAMES = frozenset({*RESERVED_HOLES, *RESOURCES})

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def find_holes(word: str) -> list[str]:
    """The names in a word's holes, in order.

    Raises:
        ValueError: if a brace stands alone.
    """
    holes = []
    for token in _TOKEN.finditer(word):
        if token.group() in "{}":
            raise ValueError(f"a lone {token.group()!r} in {word!r}")
        if token.group(1) is not None:
            holes.append(token.group(1))
    return holes


def fill_holes(word: str, values: Mapping[str, str]) -> str:
    """The word with its holes filled and its doubled braces single.

    Raises:
        KeyError: if a hole names nothing.
    """
    return _TOKEN.sub(lambda token: token.group()[0] if token.group(1) is None else values[token.group(1)], word)


def escape_braces(word: str) -> str:
    """The word as it must be written to mean itself."""
    return word.replace("{", "{{").replace("}", "}}")


def is_on_path(word: str) -> bool:
    """Whether a word is the name of a program of this machine, not the path of one."""
    return "/" not in word and shutil.which(word) is not None


def names_file(word: str, directory: Path) -> bool:
    """Whether a relative word names a file, seen from that folder."""
    if not word or Path(word).is_absolute():
        return False
    try:
        return (directory / word).is_file()
    except (OSError, ValueError):  # too long for a file name, or a NUL in it
        return False
