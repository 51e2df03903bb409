"""Our frozen values to and from plain data (what JSON can hold), by their annotations."""

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

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
    """The value of that class; fields the record lacks take their defaults, fields the class lacks are ignored."""
    hints = _hints(typing.cast("Any", cls))
    return cls(**{name: _restore(hint, record[name]) for name, hint in hints.items() if name in record})


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _restore(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return math.nan if hint is float else None
    if origin in (types.UnionType, typing.Union):
        known = [argument for argument in arguments if argument is not type(None)]
        return _restore(known[0], value) if len(known) == 1 else value
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_restore(arguments[0], item) for item in value)
        return tuple(_restore(argument, item) for argument, item in zip(arguments, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {key: _restore(arguments[1], item) for key, item in value.items()}
    return _restore_plain(hint, value)


def _restore_plain(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_record(typing.cast("type[Any]", hint), value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum | Decimal):
        return hint(value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    return float(value) if hint is float else value
