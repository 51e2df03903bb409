"""A user's own device, from a TOML file or from a line of figures."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.core.devices import PRECISIONS, Device, find_device, get_device
from foretell.core.errors import Mistake, NotFoundError, SpecError
from foretell.core.units import parse_bytes

EXAMPLE = "bf16=400e12,bandwidth=2e12,memory=48GB,units=100"
_SUFFIX = ".toml"
_FP32_OF_HALF = 1 / 8  # where only the peak of matrix units is given: from 1/16 (A100) to 1/2 (RTX 4090)
_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*([kMGTP]?)([a-zA-Z/]*)\s*")
_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def open_device(name: str) -> Device:
    """The device of a name in the catalogue, or that of a TOML file (``my-gpu.toml``).

    Raises:
        NotFoundError: There is no such device or file.
        SpecError: The file cannot be used.
    """
    return read_device_file(Path(name)) if is_device_file(name) else get_device(name)


def is_device_file(name: str) -> bool:
    """Whether a name is that of a file which describes a device."""
    return name.lower().endswith(_SUFFIX)


def read_device_file(path: Path) -> Device:
    """The device that a TOML file describes, under its ``name`` or that of the file.

    The keys are those of :func:`parse_device_figures`; ``like = "H100"`` takes what is not given from that device.

    Raises:
        NotFoundError: There is no such file, or no such device to be like.
        SpecError: The file cannot be used.
    """
    try:
        figures = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError("device file", str(path), hint=f"Write one, for example:\n{_render_example()}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as exc:
        expected = f"a TOML file of figures, for example:\n{_render_example()}"
        raise SpecError(str(path), [Mistake(place="file", found=str(exc), expected=expected)]) from exc
    return _build(figures, source=str(path), name=path.stem)


def parse_device_figures(text: str) -> Device:
    """The device with these figures, such as ``bf16=400e12,bandwidth=2e12,memory=48GB,units=100``.

    Required are a peak (``fp32``, ``tf32``, ``fp16``, ``bf16`` or ``fp8``), ``bandwidth``, ``memory`` and ``units``,
    unless ``like=H100`` takes them from that device. More are known: ``l2``, ``clock``, ``link``, ``network``,
    ``power``, ``architecture``, ``vendor``, ``year``, ``name``, ``source``.

    Raises:
        NotFoundError: There is no such device to be like.
        SpecError: A figure is missing, unknown, or not one.
    """
    figures: dict[str, Any] = {}
    mistakes = []
    for part in filter(None, map(str.strip, text.split(","))):
        key, sign, value = part.partition("=")
        if not sign or key.strip().lower() in figures:
            found = repr(part) if not sign else f"{key.strip()} twice"
            mistakes.append(Mistake(place="--device-figures", found=found, expected=f"figures such as {EXAMPLE}"))
        figures[key.strip().lower()] = value.strip()
    if mistakes:
        raise SpecError("options", mistakes)
    return _build(figures, source="--device-figures", name="own device")


def _build(figures: Mapping[str, Any], *, source: str, name: str) -> Device:
    like = get_device(str(figures["like"])) if "like" in figures else None
    found, mistakes = _read_figures(figures)
    peaks = {key: found.pop(key) for key in PRECISIONS if key in found}
    missing = [] if like else _list_missing(found, peaks, figures)
    mistakes += [Mistake(place=key, found="nothing", expected=f"{_KEYS[key][1]}, or like=H100") for key in missing]
    if mistakes:
        raise SpecError(source, mistakes)
    name = found.pop("name", name)
    if find_device(name) is not None:
        expected = "a name that is not in the catalogue, so that the two are not mixed up"
        raise SpecError(source, [Mistake(place="name", found=repr(name), expected=expected)])
    values = {
        "source": source,
        **{_FIELDS.get(key, key): value for key, value in found.items()},
        **_spread(peaks, like),
    }
    if like is not None:
        return replace(like, name=name, **values)
    return Device(name=name, kind="gpu", **values)


def _read_figures(figures: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """What can be read, and what cannot."""
    found: dict[str, Any] = {}
    mistakes = []
    for key, value in figures.items():
        if key not in _KEYS:
            expected = f"one of {', '.join(_KEYS)}"
            mistakes.append(Mistake(place="figure", found=repr(key), expected=expected))
            continue
        read, expected = _KEYS[key]
        try:
            found[key] = read(value)
        except (TypeError, ValueError, OverflowError):
            mistakes.append(Mistake(place=key, found=repr(value), expected=expected))
    found.pop("like", None)
    return found, mistakes


def _list_missing(found: Mapping[str, Any], peaks: Mapping[str, float], given: Mapping[str, Any]) -> list[str]:
    """Figures without which nothing can be predicted."""
    needed = [key for key in ("bandwidth", "memory", "units") if key not in found and key not in given]
    return needed if peaks or any(key in given for key in PRECISIONS) else ["bf16", *needed]


def _spread(peaks: Mapping[str, float], like: Device | None) -> dict[str, Any]:
    """The peaks of a device: fp16 is that of bf16, and fp32 a share of it, where they are not given."""
    if not peaks:
        return {}
    if like is not None:
        matrix = dict(like.matrix_flops) | {key: value for key, value in peaks.items() if key != "fp32"}
        return {"peak_flops": peaks.get("fp32", like.peak_flops), "matrix_flops": tuple(matrix.items())}
    matrix = {key: value for key, value in peaks.items() if key != "fp32"}
    if "bf16" in matrix:
        matrix.setdefault("fp16", matrix["bf16"])
    half = matrix.get("fp16") or 2 * matrix.get("tf32", 0.0) or matrix.get("fp8", 0.0) / 2
    fp32 = peaks.get("fp32", _FP32_OF_HALF * half)
    return {"peak_flops": fp32, "matrix_flops": tuple((key, matrix[key]) for key in PRECISIONS if key in matrix)}


def _read_number(value: Any, *, low: float, high: float, unit: str) -> float:
    """A number in a range, also with a power and a unit (``400 TFLOPS``)."""
    if isinstance(value, bool):
        raise TypeError(value)
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        if match is None or match[3].lower() not in ("", *unit.split()):
            raise ValueError(value)
        value = float(match[1]) * _POWERS[match[2]]
    number = float(value)
    if not low <= number <= high:
        raise ValueError(value)
    return number


def _build_reader(low: float, high: float, unit: str) -> Callable[[Any], float]:
    return lambda value: _read_number(value, low=low, high=high, unit=unit)


def _read_size(value: Any) -> int:
    size = parse_bytes(value)
    if isinstance(value, bool) or size < 1 << 16:
        raise ValueError(value)
    return size


def _read_count(value: Any) -> int:
    number = float(value)
    if isinstance(value, bool) or number != int(number) or not 1 <= number <= 100_000:
        raise ValueError(value)
    return int(number)


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
        raise TypeError(value)
    return value.strip()


_PEAK = (_build_reader(1e9, 1e17, "flops flop/s op/s"), "operations a second above 1e9, such as 400e12 or 400T")
_RATE = (_build_reader(1e8, 1e15, "b/s"), "bytes a second above 1e8, such as 2e12 or 2TB/s")
_SIZE = (_read_size, "a size, such as 48GB")
_TEXT = (_read_text, "a text")

# Each figure, what reads it and what it must be.
_KEYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(PRECISIONS, _PEAK),
    "bandwidth": _RATE,
    "memory": _SIZE,
    "units": (_read_count, "the number of multiprocessors or compute units, such as 100"),
    "l2": _SIZE,
    "clock": (_build_reader(1e7, 1e11, "hz"), "cycles a second above 1e7, such as 1.8e9 or 1.8GHz"),
    "link": _RATE,
    "network": _RATE,
    "power": (_build_reader(1.0, 1e5, "w"), "watts, such as 350"),
    "architecture": (_read_text, "a name, such as Hopper"),
    "vendor": _TEXT,
    "year": (_read_count, "a year, such as 2026"),
    "name": _TEXT,
    "source": _TEXT,
    "like": (_read_text, "the name of a device, such as H100"),
}
_FIELDS = {
    "bandwidth": "bandwidth_bytes",
    "memory": "memory_bytes",
    "l2": "l2_bytes",
    "clock": "clock_hz",
    "link": "link_bytes",
    "network": "network_bytes",
    "power": "power_w",
}


def _render_example() -> str:
    return '  bf16 = 400e12\n  bandwidth = "2TB/s"\n  memory = "48GB"\n  units = 100'
