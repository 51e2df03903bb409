"""Reads runner, phases, formulas, commands, environment and folders of an app file."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foretell.apps._nodes import (
    RESERVED_HOLES,
    RESERVED_NAMES,
    RUN_FOLDER,
    Entry,
    find_placeholders,
    is_on_path,
    names_file,
    render_known,
)
from foretell.apps._parameters import IDENTIFIER
from foretell.core.app import (
    OWN_OPTIONS,
    RUNNERS,
    Combine,
    Parameter,
    ParameterType,
    Phase,
    Submission,
    describe_option,
    find_meant_option,
)
from foretell.core.formula import ExpressionError, Formula

_KEYS = ("partition", "account", "cluster", "options", "sample")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_WORD = re.compile(r"[!-~]+")
_ELSEWHERE = OWN_OPTIONS | {"clusters": "slurm.cluster in the app file"}


def read_runner(entry: Entry | None) -> str:
    """Return the name of a runner."""
    if entry is None:
        return RUNNERS[0]
    name = entry.read_text(expected=" or ".join(RUNNERS))
    if name is not None and name not in RUNNERS:
        entry.note(" or ".join(RUNNERS))
    return name or RUNNERS[0]


def read_submission(entry: Entry | None) -> Submission:
    """Return the options under ``slurm``."""
    if entry is None:
        return Submission()
    fields = entry.read_fields(_KEYS, expected="a mapping such as {partition: cpu, account: PAS1234}")
    return Submission(
        partition=_read_word(fields.get("partition")),
        account=_read_word(fields.get("account")),
        cluster=_read_word(fields.get("cluster")),
        options=_read_options(fields["options"]) if "options" in fields else {},
        sample=bool(fields["sample"].read(_parse_flag)) if "sample" in fields else False,
    )


def _read_word(entry: Entry | None) -> str | None:
    expected = "a name without spaces"
    word = None if entry is None else entry.read_text(expected=expected)
    if entry is not None and word is not None and not _WORD.fullmatch(word):
        entry.note(expected)
    return word


def _read_options(entry: Entry) -> dict[str, str]:
    options = {}
    for name, value in entry.read_fields(expected="options of sbatch, such as {qos: long}").items():
        text = value.read_text(expected="text without spaces; '' for a flag")
        if not _OPTION.fullmatch(name):
            value.note("a long name without dashes before it, as in qos", found=f"the option {name!r}")
        elif meant := find_meant_option(name, _ELSEWHERE):
            value.note(_ELSEWHERE[meant], found=f"the option {describe_option(name, meant)}")
        elif text and not _WORD.fullmatch(text):
            value.note("text without spaces")
        options[name] = text or ""
    return options


def _parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


_NUMERIC = frozenset({ParameterType.INTEGER, ParameterType.NUMBER})
_MACHINE_NUMBERS = ("machine_cores", "machine_mhz", "machine_memory_bytes")  # its benchmark is read by default


def read_phases(entry: Entry | None, *, parameters: Iterable[Parameter]) -> tuple[Phase, ...]:
    """Return all phases; one with a mistake has its name."""
    fields = {} if entry is None else entry.read_fields(expected="a mapping of names to phases")
    taken = {parameter.name for parameter in parameters} | RESERVED_NAMES
    for name, field in fields.items():
        if not IDENTIFIER.fullmatch(name):
            field.note("letters, digits and _, not starting with a digit", found=f"the name {name!r}")
        elif name in taken:
            field.note("another name: a parameter or resource has this one", found=f"the name {name!r}")
    return tuple(_read_phase(name, field) for name, field in fields.items())


def _read_phase(name: str, entry: Entry) -> Phase:
    example = r"a mapping such as {pattern: 'took ([0-9.]+) s'} or {file: phases.json, key: startup}"
    fields = entry.read_fields(("pattern", "file", "key", "combine"), expected=example)
    if entry.is_mapping and ("pattern" in fields) == ("file" in fields):
        entry.note("one of the two", found="both pattern and file" if "file" in fields else "neither pattern nor file")
    if "pattern" in fields and "key" in fields:
        fields["key"].note("key only together with file", found="key together with pattern")
    combine = (fields["combine"].read(_parse_combine) if "combine" in fields else None) or Combine.MEAN
    return Phase(
        name=name,
        pattern=_read_pattern(fields["pattern"], combine) if "pattern" in fields else None,
        file=fields["file"].read_text(expected="a file's name") if "file" in fields else None,
        key=_read_key(name, fields),
        combine=combine,
    )


def _read_key(name: str, fields: dict[str, Entry]) -> str | None:
    if "key" in fields:
        return fields["key"].read_text()
    return name if "file" in fields else None


def _parse_combine(text: str) -> Combine:
    if text not in list(Combine):
        raise ValueError(render_known(text, Combine))
    return Combine(text)


def _read_pattern(entry: Entry, combine: Combine) -> str | None:
    text = entry.read_text(expected=r"a regular expression such as 'took ([0-9.]+) s'")
    if text is None:
        return None
    try:
        groups = re.compile(text).groups
    except (re.error, OverflowError, RecursionError) as exc:
        entry.note(f"a regular expression ({exc})")
        return None
    if groups > 1:
        entry.note("one group, around the number; (?:…) groups without capturing", found=f"{groups} groups in {text!r}")
    elif groups == 0 and combine is not Combine.COUNT:
        entry.note("a group around the number, such as ([0-9.]+), or combine: count")
    return text


def read_estimate(entry: Entry | None, *, phases: Iterable[Phase], parameters: Iterable[Parameter]) -> str | None:
    """Return the formula, if all its names are known and one of them is a phase."""
    text = None if entry is None else entry.read_text(expected="a formula such as startup + epochs * epoch")
    if entry is None or text is None:
        return None
    phase_names = [phase.name for phase in phases]
    names = _read_names(entry, text, known=[*phase_names, *_list_numbers(parameters)])
    if names is not None and names.isdisjoint(phase_names):
        entry.note(f"at least one phase in it: {', '.join(phase_names) or 'describe some under phases'}")
    return text


def read_per(entry: Entry | None, *, parameters: Iterable[Parameter]) -> str | None:
    """Return the formula that times are proportional to, if all its names are known."""
    text = None if entry is None else entry.read_text(expected="a formula such as size * steps / cores")
    if entry is None or text is None:
        return None
    known = [*_list_numbers(parameters), *_MACHINE_NUMBERS]
    names = _read_names(entry, text, known=known)
    if names is not None and not names:
        entry.note(f"at least one of {', '.join(known)}, which must differ between runs")
    return text


def _list_numbers(parameters: Iterable[Parameter]) -> list[str]:
    return [*(parameter.name for parameter in parameters if parameter.type in _NUMERIC), "cores", "gpus", "nodes"]


def _read_names(entry: Entry, text: str, *, known: Collection[str]) -> frozenset[str] | None:
    """Return the names in a formula; nothing, with a mistake, if it is invalid or a name is unknown."""
    try:
        names = Formula.parse(text).names
    except ExpressionError as exc:
        entry.note(exc.expected, found=exc.found)
        return None
    unknown = sorted(names.difference(known))
    for name in unknown:
        entry.note(render_known(name, known), found=f"the unknown name {name!r}")
    return None if unknown else names


_FOLDER_STARTS = (RUN_FOLDER, "{app_dir}", "/")
_BARE_HOLE = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReader:
    """Reads arguments with placeholders and collects the names in them."""

    parameters: tuple[Parameter, ...]
    has_memory: bool
    directory: Path
    used: set[str] = dataclasses.field(default_factory=set)

    def read_words(self, entry: Entry) -> tuple[str, ...]:
        """Return a command as a list of arguments; empty if there is a mistake."""
        items = entry.read_items(expected='a list of words, such as [python, "{app_dir}/train.py"]')
        return tuple(self.read_word(item) for item in items)

    def read_steps(self, entry: Entry) -> tuple[tuple[str, ...], ...]:
        """Return several commands; none for an empty list."""
        if entry.is_list and not entry.node.value:
            return ()
        items = entry.read_items(expected="a list of commands, such as [[mkdir, -p, data]]")
        return tuple(self.read_words(item) for item in items)

    def read_word(self, entry: Entry) -> str:
        word = entry.read_text(expected="a word")
        if word is None:
            return ""
        try:
            placeholders = find_placeholders(word)
        except ValueError as exc:
            entry.note("{{ or }} for a literal brace", found=str(exc))
            return ""
        for placeholder in placeholders:
            self._check_placeholder(entry, placeholder)
        self.used.update(placeholders)
        return word

    def read_environment(self, entry: Entry) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return variables with their values, and the names without one, which are inherited."""
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
        for placeholder in dict.fromkeys(_BARE_HOLE.findall(text or "")):
            if placeholder in self._placeholders():
                entry.note(f'"$PARAM_{placeholder}": a shell command has no placeholders', found=f"{{{placeholder}}}")
        return text

    def check_files(self, entry: Entry) -> None:
        """Report arguments that name a file next to the app file, if the command starts in another folder."""
        for number, node in enumerate(entry.node.value if entry.is_list else ()):
            word = Entry(node, f"{entry.place}, item {number + 1}", entry.mistakes)
            if not isinstance(node.value, str) or (number == 0 and is_on_path(node.value)):
                continue
            for prefix, path, written in self._possible_paths(node.value):
                if names_file(path, self.directory):
                    expected = f'"{prefix}{{app_dir}}/{written}", or "{prefix}{{run_dir}}/{written}" for the run\'s own'
                    word.note(expected, found=f"{path!r}, a file next to the app file, but runs start in {RUN_FOLDER}")
                    break

    def _possible_paths(self, word: str) -> Iterator[tuple[str, str, str]]:
        """Yield (option, path, the path as written) for the argument and for the part after its ``=``."""
        option, equals, value = word.partition("=")
        candidates = [("", word)] + ([(option + equals, value)] if equals and option.startswith("-") else [])
        for prefix, written in candidates:
            yield prefix, written, written.removeprefix("./")
            for parameter in self.parameters:
                if written == f"{{{parameter.name}}}" and parameter.type is ParameterType.TEXT:
                    values = (*parameter.scaled_down.values, *parameter.full_scale.values)
                    yield from ((prefix, str(value), written) for value in values)

    def _placeholders(self) -> list[str]:
        return [*(parameter.name for parameter in self.parameters), *RESERVED_HOLES]

    def _check_placeholder(self, entry: Entry, placeholder: str) -> None:
        if placeholder not in self._placeholders():
            expected = f"{render_known(placeholder, self._placeholders())} (a literal brace is written twice)"
            entry.note(expected, found=f"{{{placeholder}}}, which names nothing")
        elif placeholder == "memory_mb" and not self.has_memory:
            entry.note("a size under resources.memory to fill it", found="{memory_mb}")
