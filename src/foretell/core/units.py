"""Durations, sizes, shares and money as people write them, to and from seconds, bytes, fractions and Decimal.

Sizes of memory and files are in powers of 1024, as Slurm reads them: 1 GB is 2**30 bytes. Rates, and what a network
moves, are in powers of 1000, as the rates of links are: 1 MB/s is 10**6 bytes a second, or 8 Mb/s.
"""

import math
import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation

_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800, "ms": 0.001}
_BYTES = {
    "b": 1,
    "k": 2**10, "kb": 2**10, "kib": 2**10,
    "m": 2**20, "mb": 2**20, "mib": 2**20,
    "g": 2**30, "gb": 2**30, "gib": 2**30,
    "t": 2**40, "tb": 2**40, "tib": 2**40,
    "p": 2**50, "pb": 2**50, "pib": 2**50,
}  # fmt: skip
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")
_RATE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kKMGT]?)(bit|b|B)(?:/s|ps)?\s*")
_THOUSANDS = {"": 1e0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NEXT_UNIT = 999.5  # a larger number would be shown as 1e+03
_BARE_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{1,2})(?::(\d{1,2}(?:\.\d+)?))?")
_MINUTES = re.compile(r"(\d+):(\d{1,2}(?:\.\d+)?)")  # "MM:SS", as Slurm reads it


def parse_duration(text: str | float) -> float:
    """Seconds from ``90``, ``"90s"``, ``"10m"``, ``"1h30m"``, ``"02:30:00"`` or ``"1-00:00:00"``.

    A text needs a unit: to Slurm ``"20"`` are minutes, to most programs seconds.

    Raises:
        ValueError: if it is none of these, or not positive and finite.
    """
    try:
        seconds = float(text if isinstance(text, int | float) else _parse_duration_text(text))
    except (KeyError, OverflowError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        number = _find_bare_number(text)
        examples = "90s, 10m, 1h30m or 02:30:00" if number is None else f"{number}s, {number}m or {number}h"
        raise ValueError(f"{text!r} is not a duration{_render_need(number)}; write for example {examples}")
    return seconds


def _parse_duration_text(text: str) -> float:
    text = text.strip()
    short = _MINUTES.fullmatch(text)
    if short:
        return int(short[1]) * 60 + float(short[2])
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, first, second, third = clock.groups()
        return int(days or 0) * 86400 + int(first) * 3600 + int(second) * 60 + float(third or 0)
    parts = [_NUMBER_AND_UNIT.fullmatch(part) for part in re.findall(r"[\d.\s]+[a-zA-Z]*", text)]
    whole = "".join(part.group(0) for part in parts if part)
    if not parts or None in parts or whole.replace(" ", "") != text.replace(" ", ""):
        raise ValueError(text)
    return sum(float(part.group(1)) * _SECONDS[part.group(2).lower()] for part in parts if part)


def parse_bytes(text: str | float) -> int:
    """Bytes from ``1024``, ``"512M"``, ``"4GB"`` or ``"1.5 GiB"``; K, M, G and T are powers of 1024, as in Slurm.

    A text needs a unit: ``"4"`` hardly means four bytes.

    Raises:
        ValueError: if it is none of these, or not positive and finite.
    """
    try:
        size = float(text if isinstance(text, int | float) else _parse_bytes_text(text))
    except (KeyError, OverflowError, ValueError):
        size = math.nan
    if not (math.isfinite(size) and size > 0):
        number = _find_bare_number(text)
        examples = "512M, 4GB or 1.5GiB" if number is None else f"{number}GB or {number}MB"
        raise ValueError(f"{text!r} is not a size{_render_need(number)}; write for example {examples}")
    return math.ceil(size)


def _parse_bytes_text(text: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if not match:
        raise ValueError(text)
    return float(match.group(1)) * _BYTES[match.group(2).lower()]


def _find_bare_number(text: str | float) -> str | None:
    """The number, if that is all a text is."""
    match = _BARE_NUMBER.fullmatch(text) if isinstance(text, str) else None
    return match[1][:20] if match else None


def _render_need(number: str | None) -> str:
    return "" if number is None else " with a unit"


def parse_rate(text: str) -> float:
    """Bytes a second from ``"10Gb"``, ``"500Mbit/s"`` or ``"1.2GB/s"``; b are bits, B bytes, G a thousand million.

    Raises:
        ValueError: if it is none of these, or not positive and finite.
    """
    match = _RATE.fullmatch(text)
    rate = float(match[1]) * _THOUSANDS[match[2]] / (1 if match[3] == "B" else 8) if match else 0.0
    if not 0 < rate < math.inf:
        raise ValueError(f"{text!r} is not a rate; write for example 10Gb, 500Mb/s or 1.2GB/s")
    return rate


def parse_share(text: str | float) -> float:
    """A fraction between 0 and 1 (both excluded) from ``0.05`` or ``"5%"``.

    Raises:
        ValueError: if it is neither.
    """
    try:
        share = float(text) if isinstance(text, int | float) else _parse_share_text(text)
    except (OverflowError, ValueError):
        share = math.nan
    if not 0 < share < 1:
        raise ValueError(f"{text!r} is not a share above 0 % and below 100 %; write for example 5% or 0.05")
    return share


def _parse_share_text(text: str) -> float:
    stripped = text.strip()
    return float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)


def parse_money(text: str | float | Decimal) -> Decimal:
    """An amount of money from ``5``, ``"0.25"`` or ``"$5"``.

    Raises:
        ValueError: if it is none of these, or negative or not finite.
    """
    try:
        amount = Decimal(str(text).strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{text!r} is not an amount of money; write for example 5 or 0.25")
    return amount


def render_duration(seconds: float) -> str:
    """A duration for people: ``850 ms``, ``12.3 s``, ``4 min 10 s``, ``2 h 05 min``, ``3 d 04 h``."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    total = round(seconds)
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def render_clock(seconds: float) -> str:
    """A duration as Slurm reads it, rounded up to the minute: ``02:30:00`` or ``1-00:00:00``."""
    minutes = max(1, math.ceil(seconds / 60 - 1e-9))
    days, minutes = divmod(minutes, 1440)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return f"{days}-{clock}" if days else clock


def render_bytes(size: float) -> str:
    """A size for people, in powers of 1024: ``512 MB``, ``1.5 GB``."""
    if not math.isfinite(size):
        return "unknown"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1024
    raise AssertionError


def render_link(bytes_per_s: float) -> str:
    """A link's rate for people, in bits: ``500 Mb/s``, ``10 Gb/s``."""
    bits = bytes_per_s * 8
    unit, size = next(((unit, size) for unit, size in (("G", 1e9), ("M", 1e6)) if bits >= size), ("k", 1e3))
    return f"{bits / size:.4g} {unit}b/s"


def render_rate(bytes_per_s: float) -> str:
    """A rate for people, in powers of 1000: ``850 B/s``, ``24 MB/s``, ``1.2 GB/s``."""
    rates = ((unit, bytes_per_s / size) for unit, size in (("B", 1.0), ("kB", 1e3), ("MB", 1e6)))
    unit, rate = next(((unit, rate) for unit, rate in rates if rate < _NEXT_UNIT), ("GB", bytes_per_s / 1e9))
    return f"{rate:.3g} {unit}/s"


_CENT = Decimal("0.01")


def render_money(amount: Decimal | float, currency: str = "USD") -> str:
    """An amount that is charged: ``$12.50``, ``3.10 SU``, ``< $0.01``."""
    if 0 < amount < _CENT:
        return f"< {_add_currency('0.01', currency)}"
    return _add_currency(f"{amount:,.2f}", currency) if math.isfinite(amount) else "unknown"


def describe_money(amount: Decimal | float, currency: str = "USD") -> str:
    """The same within a sentence: ``less than a cent``, ``less than 0.01 SU``."""
    if 0 < amount < _CENT:
        return "less than a cent" if currency in ("USD", "EUR") else f"less than 0.01 {currency}"
    return render_money(amount, currency)


def render_price(amount: Decimal | float, currency: str = "USD") -> str:
    """A price per hour or a limit, with two digits or more: ``$0.0042``, ``$12.50``, ``3.10 SU``."""
    value = float(amount)
    if not math.isfinite(value):
        return "unknown"
    digits = 2 if abs(value) >= 1 or value == 0 else min(9, 1 - math.floor(math.log10(abs(value))))
    return _add_currency(f"{value:,.{digits}f}", currency)


def _add_currency(number: str, currency: str) -> str:
    return f"${number}" if currency == "USD" else f"{number} {currency}"


def render_most_money(amount: Decimal, currency: str = "USD") -> str:
    """As :func:`render_money`, rounded up: as a limit, it is enough."""
    return render_money(amount.quantize(_CENT, rounding=ROUND_CEILING), currency)
