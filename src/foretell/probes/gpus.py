"""NVIDIA GPUs: which there are, and how busy and full they are."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU this process may use; ``handle`` is NVML's."""

    uuid: str
    name: str
    handle: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """What a run's GPUs do at one moment: mean utilisation as a fraction, memory in use on all of them."""

    utilisation: float
    memory_bytes: int


def find_gpus() -> tuple[Gpu, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves us; none where NVML does not load."""
    gpus = _all_gpus()
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return gpus
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    return tuple(gpu for index, gpu in enumerate(gpus) if any(_names(word, index, gpu) for word in words))


def _names(word: str, index: int, gpu: Gpu) -> bool:
    return word == str(index) or (not word.isdigit() and gpu.uuid.startswith(word))


@cache
def _all_gpus() -> tuple[Gpu, ...]:
    import pynvml  # slow to import, and asked for only where something is run

    try:
        pynvml.nvmlInit()
        return tuple(_describe(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()


def _describe(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(uuid=_text(nvml.nvmlDeviceGetUUID(handle)), name=_text(nvml.nvmlDeviceGetName(handle)), handle=handle)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value  # older drivers' bindings give bytes


def sample_gpus(gpus: Sequence[Gpu], *, pids: Collection[int]) -> GpuSample | None:
    """What these processes make of these GPUs, which are theirs alone; ``None`` if it cannot be told."""
    if not gpus:
        return None
    import pynvml

    try:
        return GpuSample(
            utilisation=sum(pynvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu for gpu in gpus) / 100 / len(gpus),
            memory_bytes=sum(_memory(pynvml, gpu, pids) for gpu in gpus),
        )
    except pynvml.NVMLError:
        return None


def _memory(nvml: Any, gpu: Gpu, pids: Collection[int]) -> int:
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
    mine = [process.usedGpuMemory for process in processes if process.pid in pids]
    if mine and None not in mine:
        return sum(mine)
    # In a container NVML speaks of the host's pids; the GPU is ours alone, so all that is used on it is ours.
    return int(nvml.nvmlDeviceGetMemoryInfo(gpu.handle).used) if processes else 0
