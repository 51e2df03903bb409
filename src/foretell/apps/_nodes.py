"""Reads a YAML file as entries with place and line, and collects all mistakes."""

import difflib
import math
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from foretell.core.app import RESOURCES, ParameterType, Value
from foretell.core.errors import Mistake

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


T = TypeVar("T")

LARGEST_FILE = 256 * 1024  # bytes; the parser takes seconds for more, and no app needs it
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_SHOWN = 60
_VALID_YAML = "valid YAML, indented by spaces"


class _UnreadError(yaml.MarkedYAMLError):
    """YAML that is refused."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.BaseLoader):
    """Composes nodes without aliases and tags: an alias could make a small file huge or endless."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _UnreadError(f"the alias *{event.anchor}", event.start_mark)
        node = super().compose_node(parent, index)
        if node is not None and node.tag not in _PLAIN_TAGS:
            raise _UnreadError(f"the tag {node.tag}", node.start_mark)
        return node


@dataclass(frozen=True, slots=True)
class Entry:
    """One place in the file. Its readers record a mistake and return ``None`` for unexpected content."""

    node: yaml.Node
    place: str
    mistakes: list[Mistake]

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_empty(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and not self.is_quoted and self.node.value in _NOTHING

    @property
    def is_quoted(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.style is not None

    @property
    def children(self) -> "dict[str, Entry]":
        """Return its entries by key, unchecked; empty if it is not a mapping."""
        pairs = self.node.value if self.is_mapping else ()
        return {
            key.value: Entry(value, f"{self.place}.{key.value}", self.mistakes)
            for key, value in pairs
            if isinstance(key, yaml.ScalarNode)
        }

    def note(self, expected: str, *, found: str | None = None) -> None:
        line = self.node.start_mark.line + 1
        self.mistakes.append(
            Mistake(place=self.place or "file", found=found or self._found(), expected=expected, line=line)
        )

    def read_fields(self, known: Collection[str] | None = None, *, expected: str = "a mapping") -> "dict[str, Entry]":
        """Return its entries by key; empty if it is not a mapping."""
        fields: dict[str, Entry] = {}
        if not self.is_mapping:
            self.note(expected)
            return fields
        for key_node, value_node in self.node.value:
            key = Entry(key_node, self.place, self.mistakes).read_text(expected="a name")
            if key is None:
                continue
            entry = Entry(value_node, f"{self.place}.{key}" if self.place else key, self.mistakes)
            if known is not None and key not in known:
                Entry(key_node, self.place, self.mistakes).note(
                    render_known(key, known), found=f"the unknown key {key!r}"
                )
            elif key in fields:
                Entry(key_node, entry.place, self.mistakes).note("each key once", found="the same key again")
            else:
                fields[key] = entry
        return fields

    def read_items(self, *, expected: str = "a list") -> "list[Entry]":
        """Return its entries in order; empty if it is not a list or an empty one."""
        if not self.is_list or not self.node.value:
            self.note(expected, found="an empty list" if self.is_list else None)
            return []
        return [
            Entry(node, f"{self.place}, item {number}", self.mistakes)
            for number, node in enumerate(self.node.value, start=1)
        ]

    def read_text(self, *, expected: str = "text") -> str | None:
        """Return its text, quoted or not."""
        if not isinstance(self.node, yaml.ScalarNode):
            placeholder = self._find_unquoted_placeholder()
            self.note(f'quotes around it: "{placeholder}"' if placeholder else expected, found=placeholder)
        elif self.is_empty:
            self.note(expected)
        elif not is_plain_text(self.node.value):
            self.note(f"{expected} without NUL and surrogates")
        else:
            return str(self.node.value)
        return None

    def read(self, parse: Callable[[str], T], *, expected: str | None = None) -> T | None:
        """Return the result of ``parse``; the message of its ValueError is what was expected."""
        text = self.read_text(expected=expected or "a value")
        if text is None:
            return None
        try:
            return parse(text)
        except (ValueError, OverflowError) as exc:
            self.note(expected or str(exc))
            return None

    def _found(self) -> str:
        if self.is_mapping or self.is_list:
            return "a mapping" if self.is_mapping else "a list"
        if not self.is_quoted and self.node.value in _NOTHING:
            return "nothing"
        text = repr(self.node.value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

    def _find_unquoted_placeholder(self) -> str | None:
        """Return a placeholder without quotes: ``{epochs}`` is a mapping to YAML."""
        if self.is_mapping and len(self.node.value) == 1:
            key, value = self.node.value[0]
            if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode) and value.value == "":
                return f"{{{key.value}}}"
        return None


def compose_entry(text: str, mistakes: list[Mistake]) -> Entry | None:
    """Return the whole file as one entry; ``None`` (and a mistake) if it is empty or not YAML."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, OverflowError) as exc:  # PyYAML does not translate errors of chr()
        mistakes.append(_translate(exc))
        return None
    except RecursionError:
        mistakes.append(Mistake(place="file", found="hundreds of nested brackets", expected="a few levels"))
        return None
    if node is None:
        mistakes.append(Mistake(place="file", found="nothing", expected="an app; 'foretell init' writes one"))
        return None
    return Entry(node, "", mistakes)


def _translate(exc: Exception) -> Mistake:
    if isinstance(exc, yaml.MarkedYAMLError) and exc.problem_mark is not None:
        problem = (exc.problem or "").removeprefix(
            "found "
        )  # as in "found character '\\t' that cannot start any token"
        refused = isinstance(exc, _UnreadError)
        return Mistake(
            place="file",
            found=problem if refused else f"a syntax error ({problem})",
            expected="the value itself: aliases and tags are not read" if refused else _VALID_YAML,
            line=exc.problem_mark.line + 1,
        )
    found = f"the character {chr(exc.character)!r}" if isinstance(exc, yaml.reader.ReaderError) else str(exc)
    return Mistake(place="file", found=found, expected=_VALID_YAML)
