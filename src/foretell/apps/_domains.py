"""Lists and ranges of values, as an app file writes them for parameters and resources alike."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from foretell.apps._nodes import Entry
from foretell.apps._values import parse_count
from foretell.entities.app import Domain, Value

MOST_VALUES = 10_000

_RANGE_KEYS = ("from", "to", "count", "step", "spacing")
_RANGE_EXAMPLE = "a value, a list, or a range such as {from: 1, to: 9, count: 3}"

Parse = Callable[[str], Value]
Bounds = tuple[float, float]


def read_values(entry: Entry, parse: Parse) -> tuple[Value, ...]:
    """The values of a scalar, a list or a range, each once; empty where there is a mistake."""
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
    """As :func:`read_values`, but ``{from, to}`` alone means any number between them."""
    if not entry.is_mapping or {"count", "step"} & set(entry.children):
        return Domain(values=read_values(entry, parse))
    fields = entry.read_fields(_RANGE_KEYS)
    bounds = _read_bounds(entry, fields, parse)
    return Domain() if bounds is None else Domain(low=bounds[0], high=bounds[1])


def iterate_scalars(entry: Entry) -> Iterator[Entry]:
    """The entries whose text tells the type: items of a list, bounds of a range, or the scalar itself."""
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
    """Whether it is on a log scale."""
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
        fields["spacing"].note("count in place of step", found="spacing beside step")
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
