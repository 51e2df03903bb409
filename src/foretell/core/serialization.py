"""Frozen values to and from plain data (what JSON can hold), by their annotations."""

import dataclasses
import enum
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

from foretell.core.warning import PredictionWarning, upgrade_warnings

T = TypeVar("T")


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
    hints = _hints(typing.cast("Any", cls))
    if hints.get("warnings") == tuple[PredictionWarning, ...]:
        record = {**record, "warnings": upgrade_warnings(record)}
    return cls(**{name: _restore(hint, record[name]) for name, hint in hints.items() if name in record})


def read_warnings(record: Mapping[str, Any]) -> tuple[PredictionWarning, ...]:
    """The warnings of a record, also of one that an earlier version wrote.

    Raises:
        TypeError: if there is something else.
    """
    return tuple(from_record(PredictionWarning, item) for item in upgrade_warnings(record))


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _restore(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _restore_one_of(arguments, value)
    if value is None and hint is float:
        return math.nan
    if origin is tuple:
        _check_type(value, list | tuple)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_restore(arguments[0], item) for item in value)
        return tuple(_restore(argument, item) for argument, item in zip(arguments, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        _check_type(value, Mapping)
        return {key: _restore(arguments[1], item) for key, item in value.items()}
    return _restore_plain(hint, value)


def _restore_one_of(hints: tuple[Any, ...], value: Any) -> Any:
    known = [hint for hint in hints if hint is not type(None)]
    if value is None and (len(known) < len(hints) or float in known):
        return None if len(known) < len(hints) else math.nan
    if len(known) == 1:
        return _restore(known[0], value)
    _check_type(value, *known)
    return value


def _restore_plain(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_record(typing.cast("type[Any]", hint), value)
    if hint is Decimal:
        return _parse_decimal(value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if hint in (int, float):
        _check_type(value, int, float)
        return _to_float(value) if hint is float else value
    if hint in (str, bool):
        _check_type(value, hint)
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
