"""Commands, environment and folders of an app file: everything that may have holes."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foretell.apps._nodes import Entry
from foretell.apps._parameters import IDENTIFIER
from foretell.apps._values import render_known
from foretell.apps._words import RESERVED_HOLES, RUN_FOLDER, find_holes, is_on_path, names_file
from foretell.entities.app import Parameter, ParameterType

_FOLDER_STARTS = (RUN_FOLDER, "{app_dir}", "/")
_BARE_HOLE = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReader:
    """Reads words with holes and keeps the names it met in them."""

    parameters: tuple[Parameter, ...]
    has_memory: bool
    directory: Path
    used: set[str] = dataclasses.field(default_factory=set)

    def read_words(self, entry: Entry) -> tuple[str, ...]:
        """A command as a list of words; empty where there is a mistake."""
        items = entry.read_items(expected='a list of words, such as [python, "{app_dir}/train.py"]')
        return tuple(self.read_word(item) for item in items)

    def read_steps(self, entry: Entry) -> tuple[tuple[str, ...], ...]:
        """Several commands; an empty list is none."""
        if entry.is_list and not entry.node.value:
            return ()
        items = entry.read_items(expected="a list of commands, such as [[mkdir, -p, data]]")
        return tuple(self.read_words(item) for item in items)

    def read_word(self, entry: Entry) -> str:
        word = entry.read_text(expected="a word")
        if word is None:
            return ""
        try:
            holes = find_holes(word)
        except ValueError as exc:
            entry.note("{{ or }} for a literal brace", found=str(exc))
            return ""
        for hole in holes:
            self._check_hole(entry, hole)
        self.used.update(holes)
        return word

    def read_environment(self, entry: Entry) -> tuple[dict[str, str], tuple[str, ...]]:
        """Variables with their words, and the names without one: those are passed on as they are."""
        environment, inherited = {}, []
        for name, value in entry.read_fields(expected="a mapping of names to text").items():
            if not IDENTIFIER.fullmatch(name):
                value.note("letters, digits and _, not starting with a digit", found=f"the name {name!r}")
            elif name.startswith("PARAM_"):
                value.note("another name: PARAM_… are the parameters", found=f"the name {name!r}")
            if value.is_empty:
                inherited.append(name)
            else:
                environment[name] = self.read_word(value)
        return environment, tuple(inherited)

    def read_working_directory(self, entry: Entry) -> str:
        folder = self.read_word(entry)
        if folder and not folder.startswith(_FOLDER_STARTS):
            entry.note(f"a path that starts with {', '.join(_FOLDER_STARTS)}")
        return folder

    def read_shell(self, entry: Entry) -> str | None:
        text = entry.read_text(expected="a shell command")
        for hole in dict.fromkeys(_BARE_HOLE.findall(text or "")):
            if hole in self._holes():
                entry.note(f'"$PARAM_{hole}": a shell command has no holes', found=f"{{{hole}}}")
        return text

    def check_files(self, entry: Entry) -> None:
        """Note the words that name a file beside the app file, though the command starts in another folder."""
        for number, node in enumerate(entry.node.value if entry.is_list else ()):
            word = Entry(node, f"{entry.place}, item {number + 1}", entry.mistakes)
            if not isinstance(node.value, str) or (number == 0 and is_on_path(node.value)):
                continue
            for prefix, path, written in self._possible_paths(node.value):
                if names_file(path, self.directory):
                    expected = f'"{prefix}{{app_dir}}/{written}", or "{prefix}{{run_dir}}/{written}" for the run\'s own'
                    word.note(expected, found=f"{path!r}, a file beside the app file, while runs start in {RUN_FOLDER}")
                    break

    def _possible_paths(self, word: str) -> Iterator[tuple[str, str, str]]:
        """(option, path, the path as written), for the word and for what follows its ``=``."""
        option, equals, value = word.partition("=")
        candidates = [("", word)] + ([(option + equals, value)] if equals and option.startswith("-") else [])
        for prefix, written in candidates:
            yield prefix, written, written.removeprefix("./")
            for parameter in self.parameters:
                if written == f"{{{parameter.name}}}" and parameter.type is ParameterType.TEXT:
                    values = (*parameter.scaled_down.values, *parameter.full_scale.values)
                    yield from ((prefix, str(value), written) for value in values)

    def _holes(self) -> list[str]:
        return [*(parameter.name for parameter in self.parameters), *RESERVED_HOLES]

    def _check_hole(self, entry: Entry, hole: str) -> None:
        if hole not in self._holes():
            expected = f"{render_known(hole, self._holes())} (a literal brace is written twice)"
            entry.note(expected, found=f"{{{hole}}}, which names nothing")
        elif hole == "memory_mb" and not self.has_memory:
            entry.note("a size under resources.memory to fill it", found="{memory_mb}")
