"""The catalogue of devices with their published figures."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from foretell.core.device_names import find_similar, parse_name, spell_name
from foretell.core.errors import Mistake, NotFoundError, SpecError
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
    usable_memory: int = 0  # bytes that the driver leaves to programs, where that is much less

    @property
    def usable_memory_bytes(self) -> int:
        """Bytes that programs can use."""
        return self.usable_memory or int(_USABLE * self.memory_bytes)

    def find_peak(self, precision: str) -> float | None:
        """Operations a second of matrix products of this type (fp32, tf32, fp16, bf16, fp8); None if it has none."""
        found = dict(self.matrix_flops).get(precision)
        return self.peak_flops if found is None and precision == "fp32" else found


PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
_LEARN = "'foretell device learn' measures this machine."


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
    """The device of that name, the catalogue's or the driver's; see :func:`find_device`.

    Raises:
        NotFoundError: if there is none; it suggests similar ones.
    """
    found = find_device(name)
    if found is None:
        raise NotFoundError("device", name, known=_list_names(), similar=suggest_devices(name), hint=describe_known())
    return found


def find_device(name: str) -> Device | None:
    """The device of that name, if its figures are known.

    Case, punctuation, words of vendors and the order of words do not matter: ``NVIDIA A100-SXM4-80GB``, ``a100 80gb``
    and ``A100-80`` are one device. A model without its form or memory is the board that the catalogue names so
    (``A100`` is the A100-80, ``V100`` the V100-16), or else the first one there.
    """
    exact = _load().get(spell_name(name))
    if exact is not None:
        return exact
    parts = parse_name(name)
    fitting = (
        device
        for device, forms in _load_models().get(parts.model, {}).items()
        if parts.fits(forms=forms, memory_gb=device.memory_bytes / _GB)
    )
    return next(fitting, None)


def list_other_names(device: Device) -> tuple[str, ...]:
    """The other names of a device of the catalogue, such as those that drivers report."""
    return tuple(_read_catalogue().get(device.name, {}).get("also", ()))


def suggest_devices(name: str) -> tuple[str, ...]:
    """Names of known devices that may have been meant."""
    return find_similar(name, {spelling: device.name for spelling, device in _load().items()})


def describe_known() -> str:
    """Where the names of all devices are, and what to do for a device that is not among them."""
    return (
        f"'foretell device list' shows all {len(list_devices())}. A device of your own can be described in a file "
        f"(--device my-gpu.toml) or by --device-figures. {_LEARN}"
    )


def check_precision(device: Device, precision: str) -> None:
    """Check that a device has matrix products of this type: fp32, tf32, fp16, bf16 or fp8, also as ``pure-bf16``.

    Raises:
        SpecError: It has not; the message names what it has, and devices that have it.
    """
    wanted = precision.removeprefix("pure-")
    have = list_precisions(device)
    if wanted in have:
        return
    others = [name for name in _EXAMPLES if wanted in list_precisions(get_device(name))]
    elsewhere = f" ({', '.join(others)} and others have {wanted})" if others else ""
    expected = f"{' or '.join(filter(None, (', '.join(have[:-1]), have[-1])))} there{elsewhere}"
    raise SpecError("options", [Mistake(place="precision", found=f"{precision} on {device.name}", expected=expected)])


def list_precisions(device: Device) -> tuple[str, ...]:
    """The types of matrix products that a device has; all that PyTorch computes with on a CPU."""
    if device.kind == "cpu":
        return ("fp32", "fp16", "bf16")
    return tuple(name for name in PRECISIONS if device.find_peak(name))


def _list_names() -> list[str]:
    return [device.name for device in list_devices()]


@cache
def _load_models() -> dict[str, dict[Device, frozenset[str]]]:
    """The boards of each model, and the forms in which each is built."""
    found: dict[str, dict[Device, frozenset[str]]] = {}
    for name, values in _read_catalogue().items():
        names = [parse_name(word) for word in (name, *values["also"])]
        forms = frozenset(each.form for each in names if each.form)
        for each in names:
            found.setdefault(each.model, {})[_load()[spell_name(name)]] = forms
    return found


@cache
def _load() -> dict[str, Device]:
    """Devices by each of their names, as :func:`_spell` writes them."""
    found: dict[str, Device] = {}
    for name, values in _read_catalogue().items():
        device = _build_device(name, values)
        for word in (name, *values["also"]):
            if found.setdefault(spell_name(word), device) is not device:
                raise ValueError(f"{word!r} is a name of {found[spell_name(word)].name} and of {name}")
    return found


@cache
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
        usable_memory=parse_bytes(values["usable_memory"]) if "usable_memory" in values else 0,
        l2_bytes=parse_bytes(values["l2"]),
        matrix_flops=tuple(values.get("matrix_flops", {}).items()),
        **{figure: values[figure] for figure in _PLAIN if figure in values},
    )


_GB = 1 << 30
_USABLE = 0.985  # of the memory: 39.4 of 40 GiB (A100), 79.1 of 80 (H100), 23.7 of 24 (RTX 3090)
_EXAMPLES = ("A100", "H100", "RTX4090", "MI300X")  # of devices that have what another one lacks
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
