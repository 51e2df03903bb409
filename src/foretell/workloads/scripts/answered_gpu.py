"""The GPU that a recorded script finds: the device that its step is predicted for, or an H100."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretell.core.devices import Device, list_other_names, list_precisions
from foretell.workloads.scripts import script_events

_CAPABILITIES = {  # https://developer.nvidia.com/cuda-gpus; AMD's as in gfx908, gfx90a, gfx942, gfx950, gfx1100
    "Kepler": (3, 7),
    "Maxwell": (5, 2),
    "Pascal": (6, 1),
    "Volta": (7, 0),
    "Turing": (7, 5),
    "Ampere": (8, 0),
    "Ampere GA10x": (8, 6),
    "Ada": (8, 9),
    "Hopper": (9, 0),
    "Blackwell": (10, 0),
    "Blackwell GB20x": (12, 0),
    "CDNA": (9, 0),
    "CDNA 2": (9, 0),
    "CDNA 3": (9, 4),
    "CDNA 4": (9, 5),
    "RDNA 3": (11, 0),
}
_OF_MODELS = {"P100": (6, 0), "B300": (10, 3), "GB300": (10, 3)}
_BY_PRECISION = {"fp8": (9, 0), "bf16": (8, 0), "fp16": (7, 0)}  # the least that any device with it has
_OLDEST = (6, 1)
_GPUS = ("NVIDIA", "AMD", "")  # whose devices PyTorch calls CUDA; "" is a device of the user's own


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredGpu:
    """What PyTorch says of the only GPU."""

    name: str = "NVIDIA H100 80GB HBM3"  # a GPU that refuses no precision
    major: int = 9
    minor: int = 0
    memory_bytes: int = 80 * 2**30
    units: int = 132
    l2_bytes: int = 50 * 2**20


def build_answered(device: Device | None) -> AnsweredGpu:
    """The device as PyTorch describes it; an H100 instead of none, a CPU or what PyTorch does not call CUDA."""
    if device is None or device.kind != "gpu" or device.vendor not in _GPUS:
        return AnsweredGpu()
    major, minor = _find_capability(device)
    name = next((each for each in list_other_names(device) if each.startswith(_DRIVERS)), device.name)
    return AnsweredGpu(
        name=name, major=major, minor=minor,
        memory_bytes=device.memory_bytes, units=device.units, l2_bytes=device.l2_bytes,
    )  # fmt: skip


def _find_capability(device: Device) -> tuple[int, int]:
    model = re.split(r"[-\s]", device.name)[0]
    known = _OF_MODELS.get(model) or _CAPABILITIES.get(device.architecture)
    if known is not None:
        return known
    have = list_precisions(device)
    return next((least for precision, least in _BY_PRECISION.items() if precision in have), _OLDEST)


def save_answered(gpu: AnsweredGpu, folder: Path) -> None:
    """Leave the GPU where the processes of a command find it."""
    (folder / script_events.GPU).write_text(json.dumps(asdict(gpu)), encoding="utf-8")


def load_answered() -> AnsweredGpu:
    """The GPU of this command."""
    folder = script_events.find_folder()
    if folder is None or not (folder / script_events.GPU).exists():
        return AnsweredGpu()
    record: dict[str, Any] = json.loads((folder / script_events.GPU).read_text(encoding="utf-8"))
    return AnsweredGpu(**record)


_DRIVERS = ("NVIDIA ", "Tesla ", "AMD ")
