"""The catalogue of devices by their makers' figures."""

import tomllib
from functools import cache
from importlib import resources

from foretell.entities.device import Device
from foretell.entities.units import parse_bytes
from foretell.errors import NotFoundError

_HINT = "Learn your own with 'foretell device learn'."


def list_devices() -> tuple[Device, ...]:
    """Every device whose figures are known, in the catalogue's order."""
    return tuple({device.name: device for device in _load().values()}.values())


def get_device(name: str) -> Device:
    """The device of that name, ours or its driver's, however it is spelled.

    Raises:
        NotFoundError: There is none.
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
    text = resources.files("foretell.machines").joinpath("devices.toml").read_text(encoding="utf-8")
    found: dict[str, Device] = {}
    for name, values in tomllib.loads(text).items():
        device = Device(
            name=name,
            kind="gpu",
            peak_flops=values["peak_flops"],
            bandwidth_bytes=values["bandwidth_bytes"],
            units=values["units"],
            memory_bytes=parse_bytes(values["memory"]),
        )
        found |= {_spell(word): device for word in (name, *values["also"])}
    return found


def _spell(name: str) -> str:
    """Small letters and digits only."""
    return "".join(filter(str.isalnum, name.lower()))
