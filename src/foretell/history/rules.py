"""A file of rules → which application each kind of jobs is of, with every mistake in it at once."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.entities.app import Value
from foretell.entities.history import Assignment, JobKind
from foretell.errors import Mistake, NotFoundError, SpecError
from foretell.history.grouping import find_options, name_app, read_value

_TEXTS = ("name", "user", "account", "partition", "work_directory", "command", "cluster")
_KEYS = ("app", "match")
_NAME = re.compile(r"[^\W_][\w.-]{0,99}")
_A_NAME = "at most 100 letters, digits, '.', '_' and '-', starting with a letter or digit"
_LAYOUT = 'TOML with [[rules]], each with app = "name" and match = { name = "pattern" }'


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Jobs in whose texts all patterns are found are of this application; named groups are its parameters."""

    app: str
    patterns: Mapping[str, re.Pattern[str]]

    def find(self, kind: JobKind) -> dict[str, Value] | None:
        """The parameters, or nothing if it does not fit."""
        parameters: dict[str, Value] = {}
        for name, pattern in self.patterns.items():
            match = pattern.search(getattr(kind, name))
            if match is None:
                return None
            parameters |= {group: read_value(text) for group, text in match.groupdict().items() if text is not None}
        return parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules in their order: the first that fits counts. Where none does, the texts themselves tell."""

    rules: tuple[Rule, ...] = ()

    def assign(self, kind: JobKind) -> Assignment:
        options = find_options(kind.command)
        for rule in self.rules:
            parameters = rule.find(kind)
            if parameters is not None:
                return Assignment(app=rule.app, parameters={**options, **parameters})
        return Assignment(app=name_app(kind), parameters=options)


def load_rules(path: Path) -> str:
    """The text of a file of rules, checked.

    Raises:
        NotFoundError: if there is no such file.
        SpecError: with every mistake in it.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError("rules file", str(path), hint="Check the path.") from None
    except (OSError, ValueError) as exc:
        expected = "a readable TOML file in UTF-8; check the path, its permissions and its encoding"
        raise SpecError(str(path), [Mistake(place="the file", found=str(exc), expected=expected)]) from exc
    parse_rules(text, source=str(path))
    return text


def parse_rules(text: str, *, source: str) -> Rules:
    """The rules in a text.

    Raises:
        SpecError: with every mistake in it.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        line = re.search(r"at line (\d+)", str(exc))
        mistake = Mistake(
            place="the file", found=f"a syntax error ({exc})", expected=_LAYOUT, line=int(line[1]) if line else None
        )
        raise SpecError(source, [mistake]) from exc
    reader = _Reader([])
    rules = reader.read(document)
    if reader.mistakes:
        raise SpecError(source, reader.mistakes)
    return Rules(rules=tuple(rules))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Goes on after a mistake, to gather them all."""

    mistakes: list[Mistake]

    def read(self, document: Mapping[str, Any]) -> list[Rule]:
        self._check_keys(document, ("rules",), place="the file")
        tables = document.get("rules", [])
        if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
            self._add("the file", found="no list of rules", expected=_LAYOUT)
            return []
        return [self._read_rule(table, place=f"rule {number}") for number, table in enumerate(tables, start=1)]

    def _read_rule(self, table: Mapping[str, Any], *, place: str) -> Rule:
        self._check_keys(table, _KEYS, place=place)
        app = table.get("app")
        if not isinstance(app, str) or not _NAME.fullmatch(app):
            self._add(f"{place}, app", found="nothing" if app is None else repr(app), expected=_A_NAME)
        patterns = table.get("match")
        if not isinstance(patterns, dict) or not patterns:
            found = "nothing" if patterns is None else repr(patterns)
            self._add(f"{place}, match", found=found, expected='a table of patterns, such as { name = "^train" }')
            patterns = {}
        self._check_keys(patterns, _TEXTS, place=f"{place}, match")
        known = {name: text for name, text in patterns.items() if name in _TEXTS}
        return Rule(
            app=str(app), patterns={name: self._read_pattern(known[name], f"{place}, {name}") for name in known}
        )

    def _read_pattern(self, text: Any, place: str) -> re.Pattern[str]:
        try:
            return re.compile(text)
        except (re.error, TypeError, RecursionError) as exc:
            reason = f" ({exc})" if isinstance(exc, re.error) else ""
            self._add(
                place, found=f"{text!r}{reason}", expected="a regular expression, such as '^train_(?P<size>[0-9]+)'"
            )
            return re.compile("")

    def _check_keys(self, table: Mapping[str, Any], known: tuple[str, ...], *, place: str) -> None:
        for name in table:
            if name not in known:
                self._add(place, found=f"the unknown key {name!r}", expected=f"one of {', '.join(known)}")

    def _add(self, place: str, *, found: str, expected: str) -> None:
        self.mistakes.append(Mistake(place=place, found=found, expected=expected))
