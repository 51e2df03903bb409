"""Reads lists and ranges of values of parameters and resources."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from foretell.apps._nodes import RESERVED_NAMES, Entry, guess_type, parse_as, parse_count, render_known
from foretell.core.app import Domain, Parameter, ParameterType, ResourceSweep, Value
from foretell.core.units import parse_bytes

MOST_VALUES = 10_000

_RANGE_KEYS = ("from", "to", "count", "step", "spacing")
_RANGE_EXAMPLE = "a value, a list, or a range such as {from: 1, to: 9, count: 3}"

Parse = Callable[[str], Value]
Bounds = tuple[float, float]


def read_values(entry: Entry, parse: Parse) -> tuple[Value, ...]:
    """Return the values of a scalar, a list or a range without duplicates; empty if there is a mistake."""
    if entry.is_mapping:
        return _read_range(entry, parse)
    if not entry.is_list:
        value = entry.read(parse)
        return () if value is None else (value,)
    items = entry.read_items(expected="at least one value")
    if len(items) > MOST_VALUES:
        entry.note(f"at most {MOST_VALUES:,}", found=f"{len(items):,} values")
        return ()
    values = [item.read(parse) for item in items]
    return tuple(dict.fromkeys(value for value in values if value is not None))


def read_domain(entry: Entry, parse: Parse) -> Domain:
    """Return values as :func:`read_values`, but ``{from, to}`` alone means any number between them."""
    if not entry.is_mapping or {"count", "step"} & set(entry.children):
        return Domain(values=read_values(entry, parse))
    fields = entry.read_fields(_RANGE_KEYS)
    bounds = _read_bounds(entry, fields, parse)
    return Domain() if bounds is None else Domain(low=bounds[0], high=bounds[1])


def iterate_scalars(entry: Entry) -> Iterator[Entry]:
    """Yield the entries that determine the type: items of a list, bounds of a range, or the scalar itself."""
    if entry.is_list:
        yield from (Entry(node, entry.place, entry.mistakes) for node in entry.node.value)
    elif entry.is_mapping:
        yield from (child for key, child in entry.children.items() if key in ("from", "to", "step"))
    else:
        yield entry


def _read_range(entry: Entry, parse: Parse) -> tuple[Value, ...]:
    fields = entry.read_fields(_RANGE_KEYS)
    if not fields:
        entry.note(_RANGE_EXAMPLE)
        return ()
    bounds = _read_bounds(entry, fields, parse)
    if ("count" in fields) == ("step" in fields):
        found = "both count and step" if "count" in fields else "neither count nor step"
        entry.note("one of the two", found=found)
        return ()
    if bounds is None:
        return ()
    return _spread(fields, bounds, parse) if "count" in fields else _walk(fields, bounds, parse)


def _read_bounds(entry: Entry, fields: Mapping[str, Entry], parse: Parse) -> Bounds | None:
    missing = [key for key in ("from", "to") if key not in fields]
    if missing:
        entry.note("from and to", found=f"a range without {' and '.join(missing)}")
        return None
    low, high = _read_number(fields["from"], parse), _read_number(fields["to"], parse)
    if low is None or high is None:
        return None
    if low > high:
        entry.note("from at most to", found=f"from {low} to {high}")
        return None
    return low, high


def _read_number(entry: Entry, parse: Parse) -> float | None:
    value = entry.read(parse)
    if value is None:
        return None
    if isinstance(value, bool | str):
        entry.note("a number: only numbers have ranges")
        return None
    return value


def _spread(fields: Mapping[str, Entry], bounds: Bounds, parse: Parse) -> tuple[Value, ...]:
    low, high = bounds
    count = fields["count"].read(partial(parse_count, lowest=1, highest=MOST_VALUES))
    log = _read_spacing(fields.get("spacing"), low)
    if count is None or log is None:
        return ()
    whole = isinstance(low, int) and isinstance(high, int)
    if whole and count > high - low + 1:
        fields["count"].note(
            f"at most {high - low + 1}, or type: number", found=f"{count} integers between {low} and {high}"
        )
        return ()
    inner = [_interpolate(low, high, index / (count - 1), log=log) for index in range(1, count - 1)]
    rounded = [round(value) if whole else min(max(float(f"{value:.12g}"), low), high) for value in inner]
    return tuple(dict.fromkeys([low, *rounded, high] if count > 1 else [low]))


def _interpolate(low: float, high: float, share: float, *, log: bool) -> float:
    if log:
        return math.exp((1 - share) * math.log(low) + share * math.log(high))
    return (1 - share) * low + share * high  # high - low could overflow


def _read_spacing(entry: Entry | None, low: float) -> bool | None:
    """Return whether the scale is logarithmic."""
    spacing = "linear" if entry is None else entry.read_text(expected="linear or log")
    if spacing == "linear" or entry is None:
        return False
    if spacing != "log":
        if spacing is not None:
            entry.note("linear or log")
        return None
    if low <= 0:
        entry.note("from above 0, or spacing: linear", found=f"log spacing from {low}")
        return None
    return True


def _walk(fields: Mapping[str, Entry], bounds: Bounds, parse: Parse) -> tuple[Value, ...]:
    low, high = bounds
    if "spacing" in fields:
        fields["spacing"].note("count in place of step", found="both spacing and step")
        return ()
    step = _read_number(fields["step"], parse)
    if step is None:
        return ()
    if step <= 0 or (high - low) / step >= MOST_VALUES:
        fields["step"].note(f"a step above 0 that makes at most {MOST_VALUES:,} values")
        return ()
    count = math.floor((high - low) / step + 1e-9) + 1
    values = [low + index * step for index in range(count)]
    return tuple(value if isinstance(value, int) else min(float(f"{value:.12g}"), high) for value in values)


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
    """Return all parameters; one with a mistake has its name but no values."""
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
        entry.note("values for both, or sd and fs", found="values together with sd or fs")
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
    """Return the allocations of the scaled-down and the full-scale sweep."""
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
