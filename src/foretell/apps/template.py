"""Renders the commented app file that ``foretell init`` writes for a command."""

import itertools
import math
import re
import shlex
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from foretell.apps._nodes import (
    RESERVED_NAMES,
    escape_braces,
    fill_placeholders,
    find_placeholders,
    guess_type,
    is_on_path,
    is_plain_text,
    names_file,
    parse_as,
    render_value,
)
from foretell.apps.command_line import CommandLine, CommandResources, Token, list_files, read_resources
from foretell.apps.launchers import SCRIPTS
from foretell.core.app import ParameterType
from foretell.core.errors import Mistake, SpecError

_WIDTH = 100
_MOST_SWEPT = 4  # 3 to the power of 4 scaled-down runs are enough for a start
_LARGEST_SWEPT = 2**53
_PLAIN_WORD = re.compile(r"-{0,2}[A-Za-z_./][A-Za-z0-9_./+-]*")
_OPTION = re.compile(r"(--?[A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_WITH_NUMBER = re.compile(r"-[A-Za-z][0-9]+")
_LITERAL_OPTIONS = frozenset({"-m", "-c"})  # python -m package, bash -c text: not parameters
_FILE_NAME = re.compile(r"/|\.[A-Za-z][A-Za-z0-9]{0,4}$")  # of input or output: not a size of the problem
_SEED = re.compile(r"(.*_)?(seed|random_state|rng)(_.*)?", re.IGNORECASE)
_FILE = """\
# What to run, with which values, on what. 'foretell check' reports mistakes in this file.
name: {name}

{command}

# sd: values for many quick, scaled-down runs; fs: for a few full-scale ones; values: for both.
# A range works too: {{from: 16, to: 256, count: 5, spacing: log}}.
parameters:{parameters}

# What each run gets: one value, a list, a range, or {{sd: …, fs: …}}. Also: memory: 4GB
{notes}resources:
  cores: {cores}
  gpus: {gpus}
  nodes: {nodes}

# How often each configuration runs; 2 or 3 show how much its time varies.
repetitions: 1

# A run that takes longer is stopped, and is used as "longer than".
# time_limit: 1h

# Variables for each run; where it starts (by default in a folder of its own); commands before and
# after it, which are not measured.
{environment}
# working_directory: "{{app_dir}}"
# setup: [[mkdir, -p, data]]
# cleanup: [[rm, -rf, data]]

# Parts of a run, read from its output (one group around the number) or from a JSON file that it
# writes; and the run's time as a formula of them.
# phases:
#   epoch: {{pattern: 'epoch \\d+: ([0-9.]+) s', combine: mean}}
#   startup: {{file: phases.json, key: startup}}
# estimate: startup + epochs * epoch
"""

_COMMAND = """\
# The command, word by word. Each parameter below fills the placeholder of its name. Others are
# {{app_dir}} (this file's folder), {{run_dir}} (each run's own), {{cores}}, {{memory_mb}}, {{gpus}}, {{nodes}}.
command: {words}"""
_SHELL = """\
# The command, for a shell. Each parameter below is a variable in it, $PARAM_name. Others are
# $PARAM_app_dir (this file's folder), $PARAM_run_dir (each run's own), $PARAM_cores, $PARAM_gpus, $PARAM_nodes.
shell: {text}"""
_ENVIRONMENT = '# environment: {OMP_NUM_THREADS: "{cores}"}'


def suggest_name(command: CommandLine) -> str:
    """Return a name for the app: that of its script, else of its program."""
    words = command.words or [token.word for token in command.shell if token.kind == "word"]
    files = [Path(word).stem for word in words if Path(word).suffix in SCRIPTS]
    files += [word for word, before in _pair(words) if before == "-m" and _MODULE.fullmatch(word)]
    at = read_resources(command).programs
    programs = [command.words[place] if command.words else command.shell[place].word for place in at]
    return next((name for name in (*files, *(Path(word).name for word in (*programs, *words))) if name), "app")


def render_template(command: CommandLine | Sequence[str], *, name: str, directory: Path) -> str:
    """Return an app file for that command; characters that a name cannot have become ``-``.

    Raises:
        SpecError: if there is no command, or a word of it is no text.
    """
    typed = command if isinstance(command, CommandLine) else CommandLine(words=tuple(command))
    words = typed.words or [token.source for token in typed.shell]
    unfit = [word for word in (*words, *typed.environment.values()) if not is_plain_text(word)]
    if not words or unfit:
        found = repr(unfit[0]) if unfit else "nothing"
        expected = "words of text, such as: python train.py --epochs 100"
        raise SpecError("command", [Mistake(place="command", found=found, expected=expected)])
    draft = _Draft(directory, read_resources(typed))
    return _FILE.format(
        environment=_render_environment(typed.environment, draft),
        command=_render_words(typed.words, draft) if typed.words else _render_shell(typed.shell, draft),
        name=_quote(re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:100] or "app"),
        parameters="".join(f"\n  {parameter}: {values}" for parameter, values in draft.parameters.items()) or " {}",
        notes="".join(_render_note(note) for note in draft.resources.notes),
        cores=draft.resources.cores,
        gpus=draft.resources.gpus,
        nodes=draft.resources.nodes,
    )


def _render_note(note: str) -> str:
    return textwrap.fill(f"Note: {note}.", _WIDTH, initial_indent="# ", subsequent_indent="# ") + "\n"


def _render_environment(environment: Mapping[str, str], draft: "_Draft") -> str:
    pairs = (f"{name}: {_quote(draft.add_variable(name, value))}" for name, value in environment.items())
    return f"environment: {{{', '.join(pairs)}}}" if environment else _ENVIRONMENT


def _render_words(command: Sequence[str], draft: "_Draft") -> str:
    words = [draft.add_word(place, word, before) for place, (word, before) in enumerate(_pair(command))]
    return _COMMAND.format(words=_render_list([_quote(word) for word in words], indent=len("command: [")))


def _pair(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Return each word with the one before it."""
    return zip(words, [None, *words], strict=False)


def _render_shell(tokens: Sequence[Token], draft: "_Draft") -> str:
    text, before, redirection = "", None, ""
    files = list_files(tokens)
    for place, token in enumerate(tokens):
        part = token.source
        if token.kind == "operator":
            before = None
        elif token.kind == "redirection":
            redirection = token.source
        elif token.kind == "word":
            kept = token.needs_shell or (place in files and ">" in redirection)
            word = escape_braces(token.word) if kept else draft.add_word(place, token.word, before)
            part = token.source if word == escape_braces(token.word) else _render_shell_word(word)
            before = token.word
        text += part
    return _SHELL.format(text=_quote(text) if "\n" in text or not text.isprintable() else f"|-\n  {text}")


def _render_shell_word(word: str) -> str:
    """Return a word for a shell, in which each placeholder is a variable."""
    parts = fill_placeholders(
        word, {placeholder: f"\0{placeholder}\0" for placeholder in find_placeholders(word)}
    ).split("\0")
    quoted = (f'"$PARAM_{part}"' if number % 2 else part and shlex.quote(part) for number, part in enumerate(parts))
    return "".join(quoted)


@dataclass(frozen=True, slots=True)
class _Draft:
    """The parameters found in a command, as YAML."""

    directory: Path
    resources: CommandResources
    parameters: dict[str, str] = field(default_factory=dict)

    def add_variable(self, name: str, value: str) -> str:
        """Return the value of a variable that is set for the command."""
        return self._fill(name) or escape_braces(value)

    def add_word(self, place: int, word: str, before: str | None) -> str:
        """Return the word for the app file; ``before`` is the word in front of it."""
        if filled := self._fill(place):
            return filled
        if place in self.resources.launching or place in self.resources.counts:
            return self._keep(word)
        if before is None or place in self.resources.programs:
            return escape_braces(word) if is_on_path(word) else self._keep(word)
        option = _OPTION.fullmatch(word)
        if option and option.group(2):
            return f"{option.group(1)}={self._add_value(option.group(2), option.group(1))}"
        if option or before in _LITERAL_OPTIONS or _is_short_option(word, before):
            return self._keep(word)
        return self._add_value(word, _find_option(before))

    def _fill(self, place: int | str) -> str | None:
        """Return the word at an index whose number is that of a resource."""
        placeholder = self.resources.placeholders.get(place)
        return None if placeholder is None else f"{escape_braces(self.resources.counts[place].before)}{{{placeholder}}}"

    def _keep(self, word: str) -> str:
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if names_file(value, self.directory):
            return f"{escape_braces(option)}{equals}{{app_dir}}/{escape_braces(value.removeprefix('./'))}"
        return escape_braces(word)

    def _add_value(self, text: str, option: str | None) -> str:
        kind = guess_type(text)
        is_number = kind in (ParameterType.INTEGER, ParameterType.NUMBER)
        if names_file(text, self.directory) or not (option or is_number) or (not is_number and _FILE_NAME.search(text)):
            return self._keep(text)
        name = re.sub(r"[^A-Za-z0-9_]", "_", (option or "value").lstrip("-"))
        if _SEED.fullmatch(name):
            return self._keep(text)  # another seed does not change the size
        return f"{{{self._add_parameter(name, text)}}}"

    def _add_parameter(self, name: str, text: str) -> str:
        swept = sum("sd:" in values for values in self.parameters.values())
        unique = _find_free(name, {*self.parameters, *RESERVED_NAMES})
        self.parameters[unique] = _render_values(text, sweep=swept < _MOST_SWEPT)
        return unique


def _find_option(before: str) -> str | None:
    """Return the option whose value comes next; not ``-j8`` or ``--jobs=8``, which contain theirs."""
    option = _OPTION.fullmatch(before)
    return option.group(1) if option and not option.group(2) and not _WITH_NUMBER.fullmatch(before) else None


def _is_short_option(word: str, before: str) -> bool:
    """Return whether it is an option such as ``-9`` of ``xz -k -9``; after ``--offset`` it is a number."""
    return bool(re.fullmatch(r"-\d+", word)) and not before.startswith("--")


def _find_free(name: str, taken: Container[str]) -> str:
    numbered = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in numbered if candidate not in taken)


def _render_values(text: str, *, sweep: bool) -> str:
    kind = guess_type(text)
    if kind is ParameterType.INTEGER and sweep and 1 < int(text) <= _LARGEST_SWEPT:
        value = int(text)
        scaled_down = dict.fromkeys(max(1, value // part) for part in (16, 8, 4))
        return f"{{sd: {_render_list(map(str, scaled_down))}, fs: [{value // 2}, {value}]}}"
    return f"{{values: [{text if _survives(text, kind) else _quote(text)}]}}"


def _survives(text: str, kind: ParameterType) -> bool:
    """Return whether the unquoted text reaches the command unchanged."""
    try:
        value = parse_as(kind, text)
    except ValueError:
        return False
    return kind is ParameterType.NUMBER or (kind is not ParameterType.TEXT and render_value(value) == text)


def _quote(text: str) -> str:
    if _PLAIN_WORD.fullmatch(text) and guess_type(text) is ParameterType.TEXT and text.lower() != "null":
        return text
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()


def _render_list(items: Iterable[str], *, indent: int = 0) -> str:
    """Return a YAML list, broken into lines of readable length."""
    lines = [""]
    for item in items:
        if lines[-1] and indent + len(lines[-1]) + len(item) + 2 > _WIDTH:
            lines.append("")
        lines[-1] += f"{item}, "
    separator = "\n" + " " * indent
    return f"[{separator.join(line.rstrip() for line in lines).removesuffix(',')}]"
