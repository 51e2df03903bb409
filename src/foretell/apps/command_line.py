"""Reads the resources of a typed command from its numbers, and which of them can follow ``resources``."""

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretell.apps.launchers import Count, Counted, find_program, read_assignment, read_counts

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


Place = int | str

_LONGEST_SHOWN = 60
_EXPORT = "export"
_CORES, _GPUS, _NODES = "cores", "gpus", "nodes"
_RESOURCE_OF = {
    Counted.NODES: _NODES,
    **dict.fromkeys((Counted.GPUS, Counted.GPUS_PER_NODE, Counted.GPUS_PER_TASK), _GPUS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResources:
    """The resources of a command: cores and GPUs of each node, and nodes.

    ``counts`` are the numbers in it by place: an index among its words (in a shell, among its tokens), or the name of a
    variable. ``placeholders`` name the resource that the number at a place always equals. ``programs`` are the places
    of programs, ``launching`` those of the words before them. ``notes`` say what does not follow resources.
    """

    cores: int = 1
    gpus: int = 0
    nodes: int = 1
    counts: Mapping[Place, Count] = field(default_factory=dict)
    placeholders: Mapping[Place, str] = field(default_factory=dict)
    programs: tuple[int, ...] = ()
    launching: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def read_resources(command: CommandLine) -> CommandResources:
    """Return the resources of a command; of several commands for a shell, those of the largest."""
    parts = [list(enumerate(command.words))] if command.words else list(_split(command.shell))
    variables = [
        count for name, value in command.environment.items() if (count := read_assignment(f"{name}={value}", name))
    ]
    usages = []
    for part in parts:
        usage, assigned = _read_part(part, variables)
        usages.append(usage)
        if part[0][1] == _EXPORT:
            variables += assigned  # of the command after it
    return _combine(usages)


def list_files(tokens: Sequence[Token]) -> frozenset[int]:
    """Return the indices of words that name a file to read or write."""
    places, waiting = set(), False
    for place, token in enumerate(tokens):
        if token.kind == "redirection":
            waiting = "&" not in token.source.lstrip("&")
        elif token.kind == "word" and waiting:
            places.add(place)
            waiting = False
    return frozenset(places)


def _split(tokens: Sequence[Token]) -> Iterator[list[tuple[int, str]]]:
    """Return the commands that a shell starts, each as words with their indices."""
    files = list_files(tokens)
    part: list[tuple[int, str]] = []
    for place, token in enumerate(tokens):
        if token.kind == "word" and place not in files:
            part.append((place, token.source if token.needs_shell else token.word))
        elif token.kind == "operator" and part:
            yield part
            part = []
    if part:
        yield part


def _read_part(part: Sequence[tuple[int, str]], variables: Sequence[Count]) -> tuple[CommandResources, list[Count]]:
    """Return the resources of one command, and the variables set for it."""
    places, words = zip(*part, strict=True)
    start = count_prefix_words(words)
    program = start + find_program(words[start:])
    before = (read_assignment(word, place) for word, place in zip(words[:start], places, strict=False))
    assigned = [count for count in before if count is not None]
    own = [replace(count, place=places[start + int(count.place)]) for count in read_counts(words[start:])]
    usage = _find_usage([*variables, *assigned, *own])
    return replace(usage, programs=places[program : program + 1], launching=frozenset(places[:program])), assigned


def _find_usage(counts: Sequence[Count]) -> CommandResources:
    layout = _Layout.of(counts)
    for_gpus = {count.place for count in counts if layout.starts_for_gpus(count)}
    layout = _Layout.of([count for count in counts if count.place not in for_gpus])
    found = {
        count.place: _GPUS if count.place in for_gpus else layout.find_placeholder(count.counted) for count in counts
    }
    return CommandResources(
        cores=layout.cores,
        gpus=layout.gpus,
        nodes=layout.nodes,
        counts={count.place: count for count in counts},
        placeholders={place: placeholder for place, placeholder in found.items() if placeholder is not None},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The layout of a command: ``tasks`` on each of the ``nodes``, ``inner`` cores for each, by what was ``said``.

    A number may follow a resource only where every other factor of what it counts stays 1.
    """

    said: Mapping[Counted, int]
    nodes: int
    tasks: int
    inner: int
    gpus: int

    @classmethod
    def of(cls, counts: Iterable[Count]) -> "_Layout":
        said: dict[Counted, int] = {}
        for count in counts:
            if count.number is not None:
                said[count.counted] = max(count.number, said.get(count.counted, 0))
        all_tasks, per_node = said.get(Counted.TASKS), said.get(Counted.TASKS_PER_NODE)
        nodes = said.get(Counted.NODES) or (math.ceil(all_tasks / per_node) if all_tasks and per_node else 1)
        spread = math.ceil(all_tasks / nodes) if all_tasks else per_node or 1
        tasks = min(spread, per_node or spread)
        inner = said.get(Counted.PROCESSES, 1) * said.get(Counted.THREADS, 1)
        gpus = said.get(Counted.GPUS_PER_NODE) or math.ceil(said.get(Counted.GPUS, 0) / nodes)
        return cls(
            said=said,
            nodes=nodes,
            tasks=tasks,
            inner=said.get(Counted.CPUS_PER_TASK, inner),
            gpus=gpus or tasks * said.get(Counted.GPUS_PER_TASK, 0),
        )

    @property
    def cores(self) -> int:
        return self.tasks * self.inner

    def starts_for_gpus(self, count: Count) -> bool:
        """Whether it is a number of processes, one for each GPU of a node."""
        on_one_node = count.counted is Counted.PROCESSES or self.nodes == 1
        return count.may_use_gpus and on_one_node and 0 < self.gpus == count.number

    def find_placeholder(self, counted: Counted) -> str | None:
        """Return the resource that a number of this kind always equals, if there is one."""
        return _HOLES[counted](self)

    def _find_nodes(self) -> str | None:
        whole = Counted.GPUS in self.said or (Counted.TASKS in self.said and self._find_tasks() != _NODES)
        return None if whole else _NODES

    def _find_tasks(self) -> str | None:
        if self._inner_is_cores and self.said.keys() & {Counted.NODES, Counted.TASKS_PER_NODE}:
            return _NODES  # one on each
        alone = self.nodes == 1 and Counted.TASKS_PER_NODE not in self.said
        return _CORES if self._tasks_are_cores and alone else None

    def _find_tasks_per_node(self) -> str | None:
        return _CORES if self._tasks_are_cores and Counted.TASKS not in self.said else None

    def _find_cpus(self) -> str | None:
        return _CORES if self._inner_is_cores else None

    def _find_processes(self) -> str | None:
        return _CORES if self._inner_is_cores and self.said.get(Counted.THREADS, 1) == 1 else None

    def _find_threads(self) -> str | None:
        return _CORES if self._inner_is_cores and self.said.get(Counted.PROCESSES, 1) == 1 else None

    def _find_all_gpus(self) -> str | None:
        return _GPUS if self.nodes == 1 else None

    def _find_gpus_per_node(self) -> str | None:
        return _GPUS

    def _find_gpus_per_task(self) -> str | None:
        return _GPUS if self.tasks == 1 else None

    @property
    def _inner_is_cores(self) -> bool:
        return self.tasks == 1 and bool(self.said.keys() & {Counted.CPUS_PER_TASK, Counted.PROCESSES, Counted.THREADS})

    @property
    def _tasks_are_cores(self) -> bool:
        return self.inner == 1 and not self._inner_is_cores and Counted.GPUS_PER_TASK not in self.said


_HOLES: Mapping[Counted, Callable[[_Layout], str | None]] = {
    Counted.NODES: _Layout._find_nodes,
    Counted.TASKS: _Layout._find_tasks,
    Counted.TASKS_PER_NODE: _Layout._find_tasks_per_node,
    Counted.CPUS_PER_TASK: _Layout._find_cpus,
    Counted.PROCESSES: _Layout._find_processes,
    Counted.THREADS: _Layout._find_threads,
    Counted.GPUS: _Layout._find_all_gpus,
    Counted.GPUS_PER_NODE: _Layout._find_gpus_per_node,
    Counted.GPUS_PER_TASK: _Layout._find_gpus_per_task,
}


def _combine(usages: Sequence[CommandResources]) -> CommandResources:
    """Return the largest of several commands; a number follows a resource only if it has the same value."""
    largest = {name: max((getattr(usage, name) for usage in usages), default=0) for name in (_CORES, _GPUS, _NODES)}
    counts = {place: count for usage in usages for place, count in usage.counts.items()}
    placeholders = {}
    for place, count in counts.items():
        named = {usage.placeholders.get(place) for usage in usages if place in usage.counts}
        placeholder = named.pop()
        if placeholder is not None and not named and count.number == largest[placeholder]:
            placeholders[place] = placeholder
    return CommandResources(
        cores=max(1, largest[_CORES]),
        gpus=largest[_GPUS],
        nodes=max(1, largest[_NODES]),
        counts=counts,
        placeholders=placeholders,
        programs=tuple(place for usage in usages for place in usage.programs),
        launching=frozenset().union(*(usage.launching for usage in usages)),
        notes=tuple(_list_notes(list(counts.values()), placeholders, gpus=largest[_GPUS])),
    )


def _list_notes(counts: Sequence[Count], placeholders: Mapping[Place, str], *, gpus: int) -> Iterator[str]:
    kept = [
        count for count in counts if count.number and count.place not in placeholders and _matters(count, placeholders)
    ]
    if kept:
        stay = "stays as typed" if len(kept) == 1 else "stay as typed"
        yield f"{_list_texts(kept)} {stay}: changing resources does not change this part of the command"
    unread = [count for count in counts if count.number is None]
    if unread:
        yield f"resources could not be read from {_list_texts(unread)}: check resources"
    on_gpus = [count for count in counts if count.may_use_gpus and count.number]
    if on_gpus and not gpus:
        yield f"{_list_texts(on_gpus)} counts as a core for each process; if each uses a GPU, set gpus in resources"


def _matters(count: Count, placeholders: Mapping[Place, str]) -> bool:
    """Return whether to report that a number does not follow a resource; a 1 next to another number is not reported."""
    return count.number != 1 or _RESOURCE_OF.get(count.counted, _CORES) not in placeholders.values()


def _list_texts(counts: Sequence[Count]) -> str:
    texts = list(dict.fromkeys(_quote(count.text) for count in counts))
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def _quote(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
