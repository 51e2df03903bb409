"""Reads a YAML file as entries with place and line, and collects all mistakes."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from foretell.apps._values import is_plain_text, render_known
from foretell.core.errors import Mistake

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
