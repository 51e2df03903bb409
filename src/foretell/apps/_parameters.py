"""Parameters and resources of an app file."""

import re
from collections.abc import Iterable, Mapping
from functools import partial

from foretell.apps._domains import iterate_scalars, read_domain, read_values
from foretell.apps._nodes import Entry
from foretell.apps._values import guess_type, parse_as, parse_count, render_known
from foretell.apps._words import RESERVED_NAMES
from foretell.entities.app import Domain, Parameter, ParameterType, ResourceSweep, Value
from foretell.entities.units import parse_bytes

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TYPES = {kind.value: kind for kind in ParameterType} | {
    "int": ParameterType.INTEGER,
    "float": ParameterType.NUMBER,
    "str": ParameterType.TEXT,
    "string": ParameterType.TEXT,
    "bool": ParameterType.BOOLEAN,
}
_LARGEST_COUNT = 1_000_000
_LARGEST_MEMORY = 2**60
_LOWEST = {"cores": 1, "gpus": 0, "nodes": 1}


def read_parameters(fields: Mapping[str, Entry]) -> tuple[Parameter, ...]:
    """Every parameter; one that has a mistake keeps its name and lacks its values."""
    for name, field in fields.items():
        _check_name(name, field)
    return tuple(_read_parameter(name, field) for name, field in fields.items())


def _check_name(name: str, entry: Entry) -> None:
    if not IDENTIFIER.fullmatch(name):
        entry.note("letters, digits and _, not starting with a digit", found=f"the name {name!r}")
    elif name in RESERVED_NAMES:
        entry.note("another name: this one is a resource or a folder", found=f"the name {name!r}")


def _read_parameter(name: str, entry: Entry) -> Parameter:
    fields = entry.read_fields(
        ("type", "values", "sd", "fs", "target"), expected="a mapping such as {sd: [1, 2], fs: [8]}"
    )
    uses = [field for key, field in fields.items() if key != "type"]
    kind = fields["type"].read(_parse_type) if "type" in fields else _find_type(entry, uses)
    if kind is None:
        return Parameter(name=name, type=ParameterType.TEXT)
    if "values" in fields and {"sd", "fs"} & set(fields):
        entry.note("values for both, or sd and fs", found="values beside sd or fs")
    elif entry.is_mapping and not {"values", "sd", "fs"} & set(fields):
        entry.note("values, or sd and fs", found="a parameter without values to run with")
    parse = partial(parse_as, kind)
    domains: dict[str, Domain] = {
        key: Domain(values=read_values(fields[key], parse)) for key in ("values", "sd", "fs") if key in fields
    }
    return Parameter(
        name=name,
        type=kind,
        scaled_down=_first(domains, "values", "sd", "fs"),
        full_scale=_first(domains, "values", "fs", "sd"),
        target=read_domain(fields["target"], parse) if "target" in fields else None,
    )


def _first(domains: Mapping[str, Domain], *keys: str) -> Domain:
    return next((domains[key] for key in keys if key in domains), Domain())


def _parse_type(text: str) -> ParameterType:
    if text not in _TYPES:
        raise ValueError(render_known(text, _TYPES))
    return _TYPES[text]


def _find_type(entry: Entry, uses: Iterable[Entry]) -> ParameterType | None:
    scalars = [scalar for use in uses for scalar in iterate_scalars(use) if isinstance(scalar.node.value, str)]
    found = {ParameterType.TEXT if scalar.is_quoted else guess_type(scalar.node.value) for scalar in scalars}
    if found == {ParameterType.INTEGER, ParameterType.NUMBER}:
        return ParameterType.NUMBER
    if len(found) > 1:
        entry.note("values of one type, or 'type: text'", found=f"values of type {' and '.join(sorted(found))}")
        return None
    return next(iter(found), ParameterType.TEXT)


def read_resources(entry: Entry | None) -> tuple[ResourceSweep, ResourceSweep]:
    """The allocations for the scaled-down and for the full-scale sweep."""
    fields = {} if entry is None else entry.read_fields(("cores", "memory", "gpus", "nodes"))
    scaled_down: dict[str, tuple[Value, ...]] = {}
    full_scale: dict[str, tuple[Value, ...]] = {}
    for name, field in fields.items():
        key = "memory_bytes" if name == "memory" else name
        scaled_down[key], full_scale[key] = _read_resource(name, field)
    return _build_resources(scaled_down), _build_resources(full_scale)


def _build_resources(values: dict[str, tuple[Value, ...]]) -> ResourceSweep:
    return ResourceSweep(**{key: tuple(int(value) for value in some) for key, some in values.items()})


def _read_resource(name: str, entry: Entry) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    parse = _parse_memory if name == "memory" else partial(parse_count, lowest=_LOWEST[name], highest=_LARGEST_COUNT)
    if not {"sd", "fs"} & set(entry.children):
        values = read_values(entry, parse)
        return values, values
    fields = entry.read_fields(("sd", "fs"))
    read = {key: read_values(field, parse) for key, field in fields.items()}
    return read.get("sd", read.get("fs", ())), read.get("fs", read.get("sd", ()))


def _parse_memory(text: str) -> int:
    try:
        size = parse_bytes(text)
    except (ValueError, OverflowError):
        size = _LARGEST_MEMORY + 1
    if size > _LARGEST_MEMORY:
        raise ValueError("a size with its unit, such as 512M, 4GB or 1.5GiB")
    return size
