"""The catalogue of devices with their published figures."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from foretell.core.errors import NotFoundError
from foretell.core.model_files import read_positive
from foretell.core.serialization import from_record
from foretell.core.units import parse_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device with the figures that its maker publishes."""

    name: str
    kind: str  # gpu or cpu
    peak_flops: float  # in single precision outside matrix units, a second
    bandwidth_bytes: float  # of its memory, a second
    units: int  # multiprocessors, compute units or cores
    memory_bytes: int
    vendor: str = ""
    architecture: str = ""  # devices of one architecture run the same kernels
    year: int = 0
    matrix_flops: tuple[tuple[str, float], ...] = ()  # of matrix units, dense, by type: fp32, tf32, fp16, bf16, fp8
    l2_bytes: int = 0
    clock_hz: float = 0.0  # boost
    link_bytes: float = 0.0  # to the other devices of a node, a second in each direction
    network_bytes: float = 0.0  # between nodes, a second for each device, where usual
    power_w: float = 0.0
    source: str = ""  # of these figures

    def find_peak(self, precision: str) -> float | None:
        """Operations a second of matrix products of this type (fp32, tf32, fp16, bf16, fp8); None if it has none."""
        found = dict(self.matrix_flops).get(precision)
        return self.peak_flops if found is None and precision == "fp32" else found


_HINT = "Learn your own with 'foretell device learn'."


def read_device(record: Mapping[str, Any]) -> Device:
    """A device with figures above zero, from a file that somebody else may have written.

    Raises:
        ValueError, TypeError: It has others.
    """
    device = from_record(Device, record)
    for figure in (device.peak_flops, device.bandwidth_bytes, device.units):
        read_positive(figure)
    return device


def list_devices() -> tuple[Device, ...]:
    """Every device whose figures are known, in the catalogue's order."""
    return tuple({device.name: device for device in _load().values()}.values())


def get_device(name: str) -> Device:
    """The device of that name, the catalogue's or the driver's; case and punctuation do not matter.

    Raises:
        NotFoundError: if there is none.
    """
    found = find_device(name)
    if found is None:
        raise NotFoundError("device", name, known=[device.name for device in list_devices()], hint=_HINT)
    return found


def find_device(name: str) -> Device | None:
    """The device of that name, if its figures are known."""
    return _load().get(_spell(name))


@cache
def _load() -> dict[str, Device]:
    """Devices by each of their names, as :func:`_spell` writes them."""
    found: dict[str, Device] = {}
    for name, values in _read_catalogue().items():
        device = _build_device(name, values)
        for word in (name, *values["also"]):
            if found.setdefault(_spell(word), device) is not device:
                raise ValueError(f"{word!r} is a name of {found[_spell(word)].name} and of {name}")
    return found


def _read_catalogue() -> dict[str, dict[str, Any]]:
    """The figures of each device, with those that it takes from another one."""
    found: dict[str, dict[str, Any]] = {}
    folder = resources.files("foretell.core").joinpath("data", "devices")
    for file in _FILES:
        content = tomllib.loads(folder.joinpath(f"{file}.toml").read_text(encoding="utf-8"))
        vendor = content.pop("vendor")
        for name, values in content.items():
            found[name] = {"vendor": vendor, **found.get(values.get("like", ""), {}), **values}
    return found


def _build_device(name: str, values: Mapping[str, Any]) -> Device:
    return Device(
        name=name,
        kind="gpu",
        memory_bytes=parse_bytes(values["memory"]),
        l2_bytes=parse_bytes(values["l2"]),
        matrix_flops=tuple(values.get("matrix_flops", {}).items()),
        **{figure: values[figure] for figure in _PLAIN if figure in values},
    )


_FILES = ("nvidia_data_center", "nvidia_hopper_blackwell", "nvidia_geforce", "nvidia_workstation", "amd", "intel")
_PLAIN = (
    "vendor",
    "architecture",
    "year",
    "peak_flops",
    "bandwidth_bytes",
    "units",
    "clock_hz",
    "link_bytes",
    "network_bytes",
    "power_w",
    "source",
)


def _spell(name: str) -> str:
    """Small letters and digits only."""
    return "".join(filter(str.isalnum, name.lower()))
