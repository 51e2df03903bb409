"""Finds words that Foretell does not use.

``python -m tests.docs.words [--review] [PATH...]`` prints each as ``file:line: word``; ``words.toml`` is the list.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("words.toml")
DEFAULT_PATHS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "mkdocs.yml",
    "pyproject.toml",
    "Makefile",
    "docs",
    "src",
    "benchmarks",
    "examples",
    "lab",
)
_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".html", ".jinja", ".j2", ".css", ".js", ".sh", ".txt", ".cff", ""}
# Between two words of a phrase: a capital letter, a space, an underscore, or a line break in a comment or string.
_GAP = r"""(?:(?-i:(?<=[a-z])(?=[A-Z]))|[ \t_-]+|[ \t]*["']?[ \t]*\n[ \t]*(?:\#:?|f?["']|>|\*)?[ \t]*)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A pattern of words, and what to write instead."""

    pattern: re.Pattern[str]
    say: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """A phrase in which the words are right, in some files."""

    pattern: re.Pattern[str]
    files: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WordList:
    """The rules of ``words.toml``."""

    words: tuple[Rule, ...]
    review: tuple[Rule, ...]
    names: Mapping[str, str]
    exemptions: tuple[Exemption, ...]
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A word that should be another one."""

    path: str
    line: int
    word: str
    say: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r} -> {self.say}"


def read_word_list(path: Path = LIST) -> WordList:
    """Return the rules of a file such as ``words.toml``."""
    entries = tomllib.loads(path.read_text("utf-8"))
    return WordList(
        words=tuple(_build_rules(entries.get("word", ()))),
        review=tuple(_build_rules(entries.get("review", ()))),
        names={name: entry["say"] for entry in entries.get("name", ()) for name in entry["not"]},
        exemptions=tuple(
            Exemption(pattern=re.compile(entry["phrase"]), files=entry.get("files", "*"))
            for entry in entries.get("allow", ())
        ),
        pending=tuple(entries.get("pending", ())),
    )


def _build_rules(entries: Iterable[Mapping[str, Any]]) -> Iterator[Rule]:
    for entry in entries:
        yield Rule(pattern=_compile("|".join(entry["not"])), say=entry["say"])


def _compile(words: str) -> re.Pattern[str]:
    """Return the pattern of whole words in sentences, ``snake_case`` and ``CamelCase`` names."""
    spaced = words.replace(" ", _GAP)
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{spaced})(?![a-z]|(?<=[A-Z])[A-Z])")


def find_words(text: str, *, path: str, rules: Sequence[Rule], exemptions: Iterable[Exemption] = ()) -> list[Finding]:
    """Return every word of the rules in a text, but where an exemption covers it."""
    spans = [found.span() for one in exemptions if fnmatch(path, one.files) for found in one.pattern.finditer(text)]
    findings = [
        Finding(
            path=path,
            line=text.count("\n", 0, found.start()) + 1,
            word=re.sub(r"\s+", " ", found[0]),
            say=rule.say,
        )
        for rule in rules
        for found in rule.pattern.finditer(text)
        if not any(start <= found.start() and found.end() <= end for start, end in spans)
    ]
    return sorted(findings, key=lambda finding: finding.line)


def check_file(path: Path, words: WordList, *, review: bool = False) -> list[Finding]:
    """Return what a file's text and its name should say otherwise."""
    shown = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    rules = words.words + (words.review if review else ())
    named = find_words(shown, path=shown, rules=words.words, exemptions=words.exemptions)
    if path.stem.strip("_") in words.names and path.suffix == ".py":
        named.append(Finding(path=shown, line=1, word=path.name, say=words.names[path.stem.strip("_")]))
    return named + find_words(path.read_text("utf-8"), path=shown, rules=rules, exemptions=words.exemptions)


def list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield text files, also those in folders."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (
            one for one in inside if one.is_file() and one.suffix in _SUFFIXES and "__pycache__" not in one.parts
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every finding; the exit code is 1 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.words", description=__doc__)
    parser.add_argument("--review", action="store_true", help="also words that are often right")
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files and folders; all of Foretell if none"
    )
    given = parser.parse_args(arguments)
    words = read_word_list()
    paths = [path.resolve() for path in given.paths] or [
        ROOT / name for name in DEFAULT_PATHS if (ROOT / name).exists()
    ]
    findings = [finding for path in list_files(paths) for finding in check_file(path, words, review=given.review)]
    for finding in findings:
        print(finding)  # noqa: T201
    print(f"{len(findings)} found", file=sys.stderr)  # noqa: T201
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
