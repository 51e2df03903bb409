"""A command as it is typed at a terminal → its words, what is set before it, and whether it needs a shell."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

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
_KEPT = "what a run prints is kept in its stdout.log and stderr.log"


@dataclass(frozen=True, slots=True)
class Token:
    """A part of what was typed: its source, and for a word what the shell makes of it."""

    kind: str
    source: str

    @property
    def word(self) -> str:
        return "".join(shlex.split(self.source))

    @property
    def needs_shell(self) -> bool:
        """Whether only a shell can do what it says; output to a file it can do without."""
        if self.kind == "word":
            return bool(re.search(r"[$`]", _WITHOUT_QUOTES.sub("", self.source)))
        return self.kind == "operator" or (self.kind == "redirection" and "<" in self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """What was typed. ``notes`` say what of it was left out, and why.

    ``words`` are a command that can be started as it is; where they cannot (pipes, ``&&``, ``$HOME``, input from a
    file), ``shell`` has all its tokens for a shell to read.
    """

    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    shell: tuple[Token, ...] = ()
    notes: tuple[str, ...] = ()


def read_command_line(text: str) -> CommandLine:
    """What a typed command consists of.

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
    while words and (words[0] in _PREFIXES or words[0] == "env" or _ASSIGNMENT.fullmatch(words[0])):
        word = words.pop(0)
        if assignment := _ASSIGNMENT.fullmatch(word):
            environment[assignment[1]] = assignment[2]
        elif word in _PREFIXES:
            notes.append(f"left out {word!r}: {_PREFIXES[word]}")
        elif not words or not _ASSIGNMENT.fullmatch(words[0]):
            words.insert(0, word)  # env with options, or alone
            break
    return CommandLine(words=tuple(words), environment=environment, notes=tuple(notes))


def _tokenize(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"no closing quotation for {text[position : position + 20]!r}")
        yield Token(match.lastgroup or "", match.group())
        position = match.end()


def _drop_redirections(tokens: list[Token], notes: list[str]) -> Iterator[str]:
    waiting = ""  # a redirection whose file comes next
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
