"""Splits a command, as typed at a terminal, into arguments, variables set for it, and parts that need a shell."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+)
    | (?P<redirection>(?:\d+|&)?(?:>>|>\||>|<)(?:&\d*-?)?)
    | (?P<operator>\|\||&&|\|&?|;|&|\(|\))
    | (?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\|&;()<>])+)
    """,
    re.VERBOSE | re.DOTALL,
)
_WITHOUT_QUOTES = re.compile(r"'[^']*'|\\.", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PREFIXES = {"time": "runs are timed anyway", "nohup": "runs do not depend on the terminal"}
_PREFIX = re.compile(rf"(?:(?:/usr(?:/local)?)?/bin/)?({'|'.join(_PREFIXES)})")
_TIME_VALUES = frozenset({"-f", "--format", "-o", "--output"})  # options of GNU time with a value
_SHELL_WORDS = frozenset({"exec", "export", "then", "do", "else", "!", "{"})  # followed by a command
_KEPT = "what a run prints is kept in its stdout.log and stderr.log"


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a typed command: its source, and for an argument its value after the shell's quoting."""

    kind: str
    source: str

    @property
    def word(self) -> str:
        return "".join(shlex.split(self.source))

    @property
    def needs_shell(self) -> bool:
        """Whether it needs a shell; redirected output does not."""
        if self.kind == "word":
            return bool(re.search(r"[$`]", _WITHOUT_QUOTES.sub("", self.source)))
        return self.kind == "operator" or (self.kind == "redirection" and "<" in self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A typed command. ``notes`` say what was left out, and why.

    ``words`` are a command that can be started as it is; where they cannot (pipes, ``&&``, ``$HOME``, input from a
    file), ``shell`` has all its tokens for a shell to read.
    """

    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    shell: tuple[Token, ...] = ()
    notes: tuple[str, ...] = ()


def read_command_line(text: str) -> CommandLine:
    """Return the parts of a typed command.

    Raises:
        ValueError: if a quote or a redirection has no end; the message says which.
    """
    tokens = list(_tokenize(text.strip()))
    notes: list[str] = []
    if tokens and tokens[-1].source == "&":
        tokens.pop()
        notes.append("left out '&': Foretell waits for each run")
    if any(token.needs_shell for token in tokens):
        return CommandLine(shell=tuple(tokens), notes=tuple(notes))
    words = list(_drop_redirections(tokens, notes))
    environment: dict[str, str] = {}
    while words:
        if assignment := _ASSIGNMENT.fullmatch(words[0]):
            environment[assignment[1]] = assignment[2]
            left_out = 1
        elif left_out := _count_left_out(words):
            notes.append(f"left out {' '.join(words[:left_out])!r}: {_PREFIXES[Path(words[0]).name]}")
        elif words[0] == "env" and words[1:] and _ASSIGNMENT.fullmatch(words[1]):  # not with options, or alone
            left_out = 1
        else:
            break
        del words[:left_out]
    return CommandLine(words=tuple(words), environment=environment, notes=tuple(notes))


def count_prefix_words(words: Sequence[str]) -> int:
    """Return how many words precede a command in a shell: variables set for it, ``time -p``, ``exec``."""
    at = 0
    while at < len(words):
        skipped = _count_left_out(words[at:]) or int(
            words[at] in _SHELL_WORDS or bool(_ASSIGNMENT.fullmatch(words[at]))
        )
        if not skipped:
            break
        at += skipped
    return at


def _count_left_out(words: Sequence[str]) -> int:
    """Return how many words at the start are ``nohup``, or ``time`` with its options."""
    prefix = _PREFIX.fullmatch(words[0])
    if prefix is None:
        return 0
    at = 1
    while prefix[1] == "time" and at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _TIME_VALUES else 1
    return min(at, len(words))


def _tokenize(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"no closing quotation for {text[position : position + 20]!r}")
        yield Token(match.lastgroup or "", match.group())
        position = match.end()


def _drop_redirections(tokens: list[Token], notes: list[str]) -> Iterator[str]:
    waiting = ""  # a redirection whose file follows
    for token in tokens:
        if token.kind == "redirection":
            if "&" in token.source.lstrip("&"):
                notes.append(f"left out '{token.source}': {_KEPT}")
            else:
                waiting = token.source
        elif token.kind == "word" and waiting:
            notes.append(f"left out '{waiting} {token.source}': {_KEPT}")
            waiting = ""
        elif token.kind == "word":
            yield token.word
    if waiting:
        raise ValueError(f"a file after {waiting!r}")
