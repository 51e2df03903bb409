"""Frozen values to and from plain data (what JSON can hold), by their annotations."""

import dataclasses
import enum
import json
import math
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any, TypeVar

from foretell.core.warning import PredictionWarning, upgrade_warnings

T = TypeVar("T")
_Reader = Callable[[Any], Any]


def to_record(value: Any) -> Any:
    """Dictionaries, lists, strings and numbers only; what is not finite becomes ``None``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_record(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_record(item) for key, item in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return [to_record(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_record(cls: type[T], record: Mapping[str, Any]) -> T:
    """The value of that class; fields the record lacks take their defaults, fields the class lacks are ignored.

    Raises:
        TypeError: if a value is of another type than its field, or a field without default is missing.
        ValueError: if a text is not one of the allowed ones, or a number is too large.
    """
    _check_type(record, Mapping)
    readers = _find_readers(typing.cast("Any", cls))
    if readers.get("warnings") is _build_reader(tuple[PredictionWarning, ...]):
        record = {**record, "warnings": upgrade_warnings(record)}
    return cls(**{name: read(record[name]) for name, read in readers.items() if name in record})


def read_warnings(record: Mapping[str, Any]) -> tuple[PredictionWarning, ...]:
    """The warnings of a record, also of one that an earlier version wrote.

    Raises:
        TypeError: if there is something else.
    """
    return tuple(from_record(PredictionWarning, item) for item in upgrade_warnings(record))


@cache
def _find_readers(cls: Any) -> dict[str, _Reader]:
    hints = typing.get_type_hints(cls)
    return {field.name: _build_reader(hints[field.name]) for field in dataclasses.fields(cls)}


@cache
def _build_reader(hint: Any) -> _Reader:
    """What reads values of a type: made once for each, because a model has thousands of values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return partial(_read_one_of, arguments)
    if origin is tuple:
        return _build_tuple_reader(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return partial(_read_mapping, _build_reader(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return partial(from_record, typing.cast("type[Any]", hint))
    if hint in _READERS:
        return _READERS[hint]
    return hint if isinstance(hint, type) and issubclass(hint, enum.Enum) else lambda value: value


def _build_tuple_reader(hints: tuple[Any, ...]) -> _Reader:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return partial(_read_items, _build_reader(hints[0]))
    return partial(_read_fixed, [_build_reader(hint) for hint in hints])


def _read_items(read: _Reader, value: Any) -> tuple[Any, ...]:
    _check_type(value, list, tuple)
    return tuple(map(read, value))


def _read_fixed(readers: list[_Reader], value: Any) -> tuple[Any, ...]:
    _check_type(value, list, tuple)
    return tuple(read(item) for read, item in zip(readers, value, strict=True))


def _read_mapping(read: _Reader, value: Any) -> dict[Any, Any]:
    _check_type(value, Mapping)
    return {key: read(item) for key, item in value.items()}


def _read_one_of(hints: tuple[Any, ...], value: Any) -> Any:
    known = [hint for hint in hints if hint is not type(None)]
    if value is None and (len(known) < len(hints) or float in known):
        return None if len(known) < len(hints) else math.nan
    if len(known) == 1:
        return _build_reader(known[0])(value)
    _check_type(value, *known)
    return value


def _read_float(value: Any) -> float:
    if type(value) is float:
        return value
    if value is None:
        return math.nan
    _check_type(value, int, float)
    return _to_float(value)


def _read_int(value: Any) -> Any:
    _check_type(value, int, float)
    return value


def _read_text(value: Any) -> Any:
    _check_type(value, str)
    return value


def _read_truth(value: Any) -> Any:
    _check_type(value, bool)
    return value


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{reprlib.repr(value)} is too large a number") from None


def _parse_decimal(value: Any) -> Decimal:
    try:
        return Decimal(value)
    except ArithmeticError:
        raise ValueError(f"{value!r} is not a decimal number") from None


def _check_type(value: Any, *hints: Any) -> None:
    if not isinstance(value, hints):
        expected = " or ".join(getattr(hint, "__name__", str(hint)) for hint in hints)
        raise TypeError(f"{reprlib.repr(value)} instead of {expected}")


_READERS: dict[Any, _Reader] = {
    float: _read_float,
    int: _read_int,
    str: _read_text,
    bool: _read_truth,
    Decimal: _parse_decimal,
    datetime: datetime.fromisoformat,
}

Record = dict[str, Any]


def render_json(value: Any) -> str:
    """Valid JSON of a record or of any of our values: what is not finite becomes ``null``."""
    return json.dumps(to_record(value), indent=2, allow_nan=False)


def render_charge(amount: Decimal) -> float:
    """An amount to the last digit; it is rounded for people only."""
    return float(amount)


def build_record(value: object) -> Record:
    record: Mapping[str, Any] = to_record(value)
    return dict(record)
