"""Assigns jobs to applications, by rules of a file or by the texts of the jobs."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.core.app import Value
from foretell.core.errors import Mistake, NotFoundError, SpecError
from foretell.core.past_jobs import Assignment, JobKind

# Names of scripts and jobs that say nothing about the application.
_GENERIC = frozenset(
    {"a", "array", "bash", "batch", "cmd", "exe", "interactive", "job", "jobscript", "launch", "main", "mpi", "run",
     "sbatch", "script", "sh", "shell", "slurm", "srun", "start", "submit", "task", "test", "tmp", "work", "wrap"}
)  # fmt: skip
_ENDING = re.compile(r"\.(sh|bash|sbatch|slurm|job|batch|py|R|pl|jl|csh|zsh)$")
_STARTERS = frozenset({"sbatch", "srun", "salloc"})
# Options of sbatch whose value is a separate argument.
_WITH_VALUE = frozenset(f"-{letter}" for letter in "aAbBcCdDeEFGiJLMmnNopqStwx")
_ID = re.compile(r"(?<![A-Za-z0-9])(?=[0-9a-f]*\d)[0-9a-f]{8,}(?![A-Za-z0-9])", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_TO_JOIN = re.compile(r"[\W_]+")
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_LONGEST_NAME, _LONGEST_VALUE, _LONGEST_NUMBER, _MOST_OPTIONS = 60, 200, 15, 40
NAMELESS = "unnamed"


def name_app(kind: JobKind) -> str:
    """Return user and job name without numbers and ids; a script or folder replaces a generic name."""
    stems = map(stem_of, _list_names(kind))
    name = next((stem for stem in stems if stem and stem.lower() not in _GENERIC), NAMELESS)
    user = _TO_JOIN.sub("-", kind.user).strip("-")
    return f"{user}.{name}" if user else name


def _list_names(kind: JobKind) -> Iterator[str]:
    yield kind.name
    yield find_script(kind.command)
    yield from reversed(kind.work_directory.split("/"))


@lru_cache(maxsize=10_000)
def stem_of(name: str) -> str:
    """Return the common name: ``train_lr0.1_run17`` and ``train_lr0.3_run2`` are both ``train_lr_run``."""
    base = name.rsplit("/", 1)[-1]
    plain = _NUMBER.sub(" ", _ID.sub(" ", _ENDING.sub("", base)))
    return _TO_JOIN.sub("_", plain).strip("_")[:_LONGEST_NAME]


@lru_cache(maxsize=10_000)
def find_script(command: str) -> str:
    """Return the script that a command submits: the first argument that is not an option; empty if there is none."""
    words = command.split()
    place = _find_script_place(words)
    return "" if place is None else words[place]


def _find_script_place(words: Sequence[str]) -> int | None:
    if not words or words[0].rsplit("/", 1)[-1] not in _STARTERS:
        return 0 if words else None
    place = 1
    while place < len(words):
        word = words[place]
        if word.startswith("--wrap") or not word.startswith("-"):
            return None if word.startswith("--wrap") else place
        takes_next = word in _WITH_VALUE or (word.startswith("--") and "=" not in word and _has_value(words, place))
        place += 2 if takes_next else 1
    return None


def _has_value(words: Sequence[str], place: int) -> bool:
    """Return whether the value of a long option is the next argument: it is if a script still follows."""
    following = words[place + 1 : place + 3]
    flags = {"--parsable", "--exclusive", "--requeue", "--no-requeue", "--wait", "--hold", "--test-only", "--quiet"}
    return words[place] not in flags and len(following) > 1 and not following[0].startswith("-")


@lru_cache(maxsize=10_000)
def find_options(command: str) -> Mapping[str, Value]:
    """Return ``--epochs 30``, ``--batch=64`` and flags after the script."""
    words = command.split()
    place = _find_script_place(words)
    if place is None:
        return {}
    found: dict[str, Value] = {}
    for name, value in _list_options(words[place + 1 :]):
        if len(found) < _MOST_OPTIONS:
            found[name] = value
    return found


def _list_options(words: Sequence[str]) -> Iterator[tuple[str, Value]]:
    for place, word in enumerate(words):
        match = _OPTION.fullmatch(word)
        if match is None:
            continue
        name, value = match[1].replace("-", "_"), match[2]
        following = words[place + 1] if place + 1 < len(words) else "-"
        is_flag = value is None and following.startswith("-") and not _NUMBER.fullmatch(following)
        yield name, True if is_flag else read_value(following if value is None else value)


def read_value(text: str) -> Value:
    """Return a number or a boolean if the text is one, else the text."""
    words: dict[str, Value] = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    if not _NUMBER.fullmatch(text) or len(text) > _LONGEST_NUMBER:
        return text[:_LONGEST_VALUE]
    number = int(text) if text.lstrip("+-").isdecimal() else float(text)
    return number if math.isfinite(number) else text


_TEXTS = ("name", "user", "account", "partition", "work_directory", "command", "cluster")
_KEYS = ("app", "match")
_NAME = re.compile(r"[^\W_][\w.-]{0,99}")
_A_NAME = "at most 100 letters, digits, '.', '_' and '-', starting with a letter or digit"
_LAYOUT = 'TOML with [[rules]], each with app = "name" and match = { name = "pattern" }'


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Assigns jobs whose texts match all patterns to an application; named groups are its parameters."""

    app: str
    patterns: Mapping[str, re.Pattern[str]]

    def find(self, kind: JobKind) -> dict[str, Value] | None:
        """Return the parameters; ``None`` if the rule does not match."""
        parameters: dict[str, Value] = {}
        for name, pattern in self.patterns.items():
            match = pattern.search(getattr(kind, name))
            if match is None:
                return None
            parameters |= {group: read_value(text) for group, text in match.groupdict().items() if text is not None}
        return parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules in order: the first that matches applies. Without a match, the texts of the job decide."""

    rules: tuple[Rule, ...] = ()

    def assign(self, kind: JobKind) -> Assignment:
        options = find_options(kind.command)
        for rule in self.rules:
            parameters = rule.find(kind)
            if parameters is not None:
                return Assignment(app=rule.app, parameters={**options, **parameters})
        return Assignment(app=name_app(kind), parameters=options)


def load_rules(path: Path) -> str:
    """Return the checked text of a rules file.

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
    """Return the rules in a text.

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
    """Reads rules and collects all mistakes."""

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
