"""What ``--json`` prints and what runs are exported as: plain data, with money as an exact number."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from foretell.core.serialization import to_record

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
