"""A user's command → the commented app file that ``foretell init`` writes."""

import itertools
import math
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from foretell.apps._values import guess_type, is_plain_text, parse_as, render_value
from foretell.apps._words import RESERVED_NAMES, escape_braces, is_on_path, names_file
from foretell.entities.app import ParameterType
from foretell.errors import Mistake, SpecError

_WIDTH = 100
_MOST_SWEPT = 4  # 3 to the 4th scaled-down runs are enough to begin with
_LARGEST_SWEPT = 2**53
_PLAIN_WORD = re.compile(r"-{0,2}[A-Za-z_./][A-Za-z0-9_./+-]*")
_OPTION = re.compile(r"(--?[A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_LITERAL_OPTIONS = frozenset({"-m", "-c"})  # python -m package, bash -c text: no parameters
_FILE = """\
# What to run, with which values, on what. 'foretell check' names every mistake in this file.
name: {name}

# The command, word by word. Each parameter below fills the hole of its name; further holes are
# {{app_dir}} (this file's folder), {{run_dir}} (each run's own), {{cores}}, {{memory_mb}}, {{gpus}}, {{nodes}}.
command: {command}

# sd: values for many quick, scaled-down runs; fs: for a few full-scale ones; values: for both.
# A range works too: {{from: 16, to: 256, count: 5, spacing: log}}.
parameters:{parameters}

# What each run gets: one value, a list, a range, or {{sd: …, fs: …}}. Also: memory: 4GB
resources:
  cores: {cores}
  gpus: {gpus}
  nodes: {nodes}

# How often each configuration runs; 2 or 3 show how much its time varies.
repetitions: 1

# A run that takes longer is stopped, and counts as "longer than".
# time_limit: 1h

# Variables for each run; where it starts (by default in a folder of its own); commands before and
# after it, which are not measured.
# environment: {{OMP_NUM_THREADS: "{{cores}}"}}
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

_SCRIPTS = (".py", ".sh", ".jl", ".R", ".pl", ".m")


def suggest_name(command: Sequence[str]) -> str:
    """A name for the app: that of its script, else of its program."""
    files = [Path(word).stem for word in command if Path(word).suffix in _SCRIPTS]
    return files[0] if files else Path(command[0]).name


def render_template(command: Sequence[str], *, name: str, directory: Path) -> str:
    """An app file for that command; what a name cannot hold becomes ``-``.

    Raises:
        SpecError: if there is no command, or a word of it is no text.
    """
    unfit = [word for word in command if not is_plain_text(word)]
    if not command or unfit:
        found = repr(unfit[0]) if unfit else "nothing"
        expected = "words of text, such as: python train.py --epochs 100"
        raise SpecError("command", [Mistake(place="command", found=found, expected=expected)])
    draft = _Draft(directory)
    words = [draft.add_word(word, before) for word, before in zip(command, [None, *command], strict=False)]
    return _FILE.format(
        name=_quote(re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:100] or "app"),
        command=_render_list([_quote(word) for word in words], indent=len("command: [")),
        parameters="".join(f"\n  {parameter}: {values}" for parameter, values in draft.parameters.items()) or " {}",
        **draft.resources,
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    """The parameters found in a command, as YAML."""

    directory: Path
    parameters: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=lambda: {"cores": "1", "gpus": "0", "nodes": "1"})

    def add_word(self, word: str, before: str | None) -> str:
        """The word as the app file has it; ``before`` is the word in front of it."""
        if before is None and is_on_path(word):
            return escape_braces(word)
        option, follows = _OPTION.fullmatch(word), _OPTION.fullmatch(before or "")
        if option and option.group(2):
            return f"{option.group(1)}={self._add_value(option.group(2), option.group(1))}"
        if option or before is None or before in _LITERAL_OPTIONS:
            return self._keep(word)
        return self._add_value(word, follows.group(1) if follows and not follows.group(2) else None)

    def _keep(self, word: str) -> str:
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if names_file(value, self.directory):
            return f"{escape_braces(option)}{equals}{{app_dir}}/{escape_braces(value.removeprefix('./'))}"
        return escape_braces(word)

    def _add_value(self, text: str, option: str | None) -> str:
        kind = guess_type(text)
        is_number = kind in (ParameterType.INTEGER, ParameterType.NUMBER)
        if names_file(text, self.directory) or not (option or is_number):
            return self._keep(text)
        name = re.sub(r"[^A-Za-z0-9_]", "_", (option or "value").lstrip("-"))
        if name in self.resources and kind is ParameterType.INTEGER and 1 <= int(text) <= 1024:
            self.resources[name] = text
            return f"{{{name}}}"
        return f"{{{self._add_parameter(name, text)}}}"

    def _add_parameter(self, name: str, text: str) -> str:
        swept = sum("sd:" in values for values in self.parameters.values())
        unique = _find_free(name, {*self.parameters, *RESERVED_NAMES})
        self.parameters[unique] = _render_values(text, sweep=swept < _MOST_SWEPT)
        return unique


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
    """Whether the text, unquoted, reaches the command with its meaning."""
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
    """A YAML list, broken into lines of readable length."""
    lines = [""]
    for item in items:
        if lines[-1] and indent + len(lines[-1]) + len(item) + 2 > _WIDTH:
            lines.append("")
        lines[-1] += f"{item}, "
    separator = "\n" + " " * indent
    return f"[{separator.join(line.rstrip() for line in lines).removesuffix(',')}]"
