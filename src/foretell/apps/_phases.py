"""Phases of an app file, and formulas: the estimate made of them, and what times are in proportion to."""

import re
from collections.abc import Collection, Iterable

from foretell.apps._nodes import Entry
from foretell.apps._parameters import IDENTIFIER
from foretell.apps._values import render_known
from foretell.apps._words import RESERVED_NAMES
from foretell.entities.app import Combine, Parameter, ParameterType, Phase
from foretell.entities.formula import ExpressionError, Formula

_NUMERIC = frozenset({ParameterType.INTEGER, ParameterType.NUMBER})
_MACHINE_NUMBERS = ("machine_cores", "machine_mhz", "machine_memory_bytes")  # its benchmark comes in by itself


def read_phases(entry: Entry | None, *, parameters: Iterable[Parameter]) -> tuple[Phase, ...]:
    """Every phase; one that has a mistake keeps its name."""
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
        fields["key"].note("key only beside file", found="key beside pattern")
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
    """The formula, once all its names are known ones and one of them is a phase."""
    text = None if entry is None else entry.read_text(expected="a formula such as startup + epochs * epoch")
    if entry is None or text is None:
        return None
    phase_names = [phase.name for phase in phases]
    names = _read_names(entry, text, known=[*phase_names, *_list_numbers(parameters)])
    if names is not None and names.isdisjoint(phase_names):
        entry.note(f"at least one phase in it: {', '.join(phase_names) or 'describe some under phases'}")
    return text


def read_per(entry: Entry | None, *, parameters: Iterable[Parameter]) -> str | None:
    """The formula that times are in proportion to, once all its names are known ones."""
    text = None if entry is None else entry.read_text(expected="a formula such as size * steps / cores")
    if entry is None or text is None:
        return None
    known = [*_list_numbers(parameters), *_MACHINE_NUMBERS]
    names = _read_names(entry, text, known=known)
    if names is not None and not names:
        entry.note(f"at least one of {', '.join(known)}: what is the same for all runs tells nothing")
    return text


def _list_numbers(parameters: Iterable[Parameter]) -> list[str]:
    return [*(parameter.name for parameter in parameters if parameter.type in _NUMERIC), "cores", "gpus", "nodes"]


def _read_names(entry: Entry, text: str, *, known: Collection[str]) -> frozenset[str] | None:
    """The names in a formula; nothing if it is none, or one of them is unknown, which is then noted."""
    try:
        names = Formula.parse(text).names
    except ExpressionError as exc:
        entry.note(exc.expected, found=exc.found)
        return None
    unknown = sorted(names.difference(known))
    for name in unknown:
        entry.note(render_known(name, known), found=f"the unknown name {name!r}")
    return None if unknown else names
