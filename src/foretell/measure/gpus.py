"""Lists NVIDIA GPUs and samples their utilisation and memory."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from foretell.measure.procfs import find_stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU this process may use; ``handle`` is NVML's."""

    uuid: str
    name: str
    handle: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """A sample of a run's GPUs: mean utilisation as a fraction, used memory of all of them."""

    utilisation: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """A sample of some GPUs: mean utilisation of them and of their memory interfaces, and all used memory."""

    utilisation: float
    interface: float
    memory_bytes: int


def find_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs in ``CUDA_VISIBLE_DEVICES``; none if NVML does not load."""
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
    import pynvml  # slow to import, and only needed to run commands

    try:
        pynvml.nvmlInit()
        return tuple(_describe(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()


def _describe(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(uuid=_text(nvml.nvmlDeviceGetUUID(handle)), name=_text(nvml.nvmlDeviceGetName(handle)), handle=handle)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value  # bindings of older drivers return bytes


def sample_gpus(gpus: Sequence[Gpu], *, pids: Collection[int]) -> GpuSample | None:
    """Return the usage of these GPUs, which only these processes use; ``None`` if unknown."""
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


def find_used_gpus(gpus: Sequence[Gpu], *, pids: Collection[int]) -> tuple[Gpu, ...]:
    """Return the GPUs on which these processes compute; all busy ones if NVML's pids differ from ours."""
    import pynvml

    try:
        users = [{each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)} for gpu in gpus]
    except pynvml.NVMLError:
        return ()
    mine = tuple(gpu for gpu, known in zip(gpus, users, strict=True) if known & set(pids))
    return mine or tuple(
        gpu for gpu, known in zip(gpus, users, strict=True) if any(find_stat(pid) is None for pid in known)
    )


def read_load(gpus: Sequence[Gpu], *, pids: Collection[int]) -> GpuLoad | None:
    """Return the current usage of these GPUs by these processes; ``None`` if unknown."""
    import pynvml

    try:
        rates = [pynvml.nvmlDeviceGetUtilizationRates(gpu.handle) for gpu in gpus]
        memory_bytes = sum(_memory(pynvml, gpu, pids) for gpu in gpus)
    except pynvml.NVMLError:
        return None
    return GpuLoad(
        utilisation=sum(rate.gpu for rate in rates) / 100 / len(rates),
        interface=sum(rate.memory for rate in rates) / 100 / len(rates),
        memory_bytes=memory_bytes,
    )


def _memory(nvml: Any, gpu: Gpu, pids: Collection[int]) -> int:
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
    mine = [process.usedGpuMemory for process in processes if process.pid in pids]
    if mine and None not in mine:
        return sum(mine)
    # In a container NVML reports the host's pids; the GPU is exclusive, so all of its used memory is ours.
    return int(nvml.nvmlDeviceGetMemoryInfo(gpu.handle).used) if processes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """What a GPU does at a moment: its clock, how busy it is as a fraction, and how many other processes use it."""

    clock_hz: float
    utilisation: float
    others: int


def read_state(gpu: Gpu) -> GpuState | None:
    """Return the state of a GPU; ``None`` if NVML does not say it."""
    import pynvml

    try:
        users = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)}
        return GpuState(
            clock_hz=1e6 * pynvml.nvmlDeviceGetClockInfo(gpu.handle, pynvml.NVML_CLOCK_SM),
            utilisation=pynvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu / 100,
            # In a container NVML has the host's pids, and ours is not among them: none is counted as another one.
            others=len(users - {os.getpid()}) if os.getpid() in users else 0,
        )
    except pynvml.NVMLError:
        return None
