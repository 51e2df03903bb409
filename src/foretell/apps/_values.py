"""Parses and renders values of parameters: the same rules in an app file, for ``--set`` and in a CSV cell."""

import difflib
import math
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from foretell.core.app import RESOURCES, ParameterType, Value

RESERVED_HOLES = ("cores", "memory_mb", "gpus", "nodes", "run_dir", "app_dir")
RUN_FOLDER = "{run_dir}"
RESERVED_NAMES = frozenset({*RESERVED_HOLES, *RESOURCES})

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def find_placeholders(word: str) -> list[str]:
    """Return the names in the placeholders of a text, in order.

    Raises:
        ValueError: if a brace stands alone.
    """
    placeholders = []
    for token in _TOKEN.finditer(word):
        if token.group() in "{}":
            raise ValueError(f"a lone {token.group()!r} in {word!r}")
        if token.group(1) is not None:
            placeholders.append(token.group(1))
    return placeholders


def fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders filled and doubled braces replaced by single ones.

    Raises:
        KeyError: if a placeholder names nothing.
    """
    return _TOKEN.sub(lambda token: token.group()[0] if token.group(1) is None else values[token.group(1)], word)


def escape_braces(word: str) -> str:
    """Return the text with its braces doubled."""
    return word.replace("{", "{{").replace("}", "}}")


def is_on_path(word: str) -> bool:
    """Return whether a word is the name of a program on PATH, not the path of one."""
    return "/" not in word and shutil.which(word) is not None


def names_file(word: str, directory: Path) -> bool:
    """Return whether a relative path names a file below that folder."""
    if not word or Path(word).is_absolute():
        return False
    try:
        return (directory / word).is_file()
    except (OSError, ValueError):  # too long for a file name, or a NUL in it
        return False


_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_PADDED = re.compile(r"[-+]?0\d.*", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE)
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_EXACT_FLOAT = 2**53
_EXPECTED = {
    ParameterType.INTEGER: "an integer such as 64",
    ParameterType.NUMBER: "a finite number such as 0.5",
    ParameterType.BOOLEAN: "true or false",
    ParameterType.TEXT: "text that a command line can hold (no NUL)",
}


def parse_as(kind: ParameterType, text: str) -> Value:
    """Return the value of a text.

    Raises:
        ValueError: if it is none of that type; the message says what was expected.
    """
    value = _PARSERS[kind](text)
    if value is None:
        raise ValueError(_EXPECTED[kind])
    return value


def _parse_integer(text: str) -> int | None:
    stripped = text.strip()
    if _WHOLE.fullmatch(stripped):
        return int(stripped) if len(stripped) <= 20 and abs(int(stripped)) <= _LARGEST_INTEGER else None
    number = _parse_number(stripped)
    if number is None or not number.is_integer() or abs(number) > _LARGEST_EXACT_FLOAT:
        return None
    return int(number)


def _parse_number(text: str) -> float | None:
    stripped = text.strip()
    number = float(stripped) if _DECIMAL.fullmatch(stripped) else math.nan
    return number + 0.0 if math.isfinite(number) else None  # + 0.0: no negative zero


def _parse_boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


def _parse_text(text: str) -> str | None:
    return text if is_plain_text(text) else None


_PARSERS = {
    ParameterType.INTEGER: _parse_integer,
    ParameterType.NUMBER: _parse_number,
    ParameterType.BOOLEAN: _parse_boolean,
    ParameterType.TEXT: _parse_text,
}


def parse_count(text: str, *, lowest: int, highest: int) -> int:
    """Return an integer between two bounds, both included.

    Raises:
        ValueError: if it is none; the message says what was expected.
    """
    count = _parse_integer(text)
    if count is None or not lowest <= count <= highest:
        raise ValueError(f"an integer from {lowest:,} to {highest:,}")
    return count


def guess_type(text: str) -> ParameterType:
    """Return the type of an unquoted text; ``007`` and ``no`` stay text, so that no value changes."""
    if _PADDED.fullmatch(text):
        return ParameterType.TEXT
    if _WHOLE.fullmatch(text):
        return ParameterType.INTEGER
    if _DECIMAL.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return ParameterType.NUMBER
    return ParameterType.TEXT if _parse_boolean(text) is None else ParameterType.BOOLEAN


def render_value(value: Value) -> str:
    """Return the argument of a command: ``true``, ``64`` (also for 64.0), ``1e-05``, or the text itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) <= _LARGEST_EXACT_FLOAT
        return str(int(value)) if whole else repr(float(value))
    return str(value)


def is_plain_text(text: str) -> bool:
    """Return whether it can be an argument of a process: no NUL, nothing that UTF-8 cannot encode."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def render_known(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of an unknown name: the known names, and the most similar one."""
    names = [str(name) for name in dict.fromkeys(known)]  # an enumeration's repr is not its name
    if not names:
        return "none: there are no names"
    near = find_near(name, names)
    return f"one of {', '.join(names)}{'' if near is None else f'; did you mean {near!r}?'}"


def find_near(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, if one is similar."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
