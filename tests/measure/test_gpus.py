"""GPUs through NVML; the library is replaced, because most machines have no GPU."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from foretell.measure import gpus as gpus_module
from foretell.measure.gpus import find_gpus, find_used_gpus, read_load, read_state, sample_gpus


class NVMLError(Exception):
    pass


def build_nvml(**changes: Callable[..., Any]) -> SimpleNamespace:
    functions = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}{handle}",
        "nvmlDeviceGetName": lambda handle: b"Tesla V100",
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=[80, 40][handle], memory=[50, 20][handle]),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
            SimpleNamespace(pid=7, usedGpuMemory=100),
            SimpleNamespace(pid=8, usedGpuMemory=1000),
        ],
        "NVML_CLOCK_SM": 1,
        "nvmlDeviceGetClockInfo": lambda handle, kind: [1530, 1380][handle] if kind == 1 else 0,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=5000),
    }
    return SimpleNamespace(**(functions | changes))


@pytest.fixture
def use_nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def use_nvml(**changes: Callable[..., Any]) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", build_nvml(**changes))
        gpus_module._all_gpus.cache_clear()

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield use_nvml
    gpus_module._all_gpus.cache_clear()


def fail(*_arguments: object) -> None:
    raise NVMLError


def test_without_a_driver_there_are_none(use_nvml: Callable[..., None]) -> None:
    use_nvml(nvmlInit=fail)
    assert find_gpus() == ()
    assert sample_gpus((), pids={1}) is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, [0, 1]), ("", []), ("1", [1]), ("1,0", [0, 1]), ("GPU-0", [0]), ("GPU-9", []), ("-1", [])],
)
def test_only_visible_gpus_are_listed(
    use_nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: Any
) -> None:
    use_nvml()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.handle for gpu in find_gpus()] == expected


def test_sample_counts_only_our_processes(use_nvml: Callable[..., None]) -> None:
    use_nvml()
    sample = sample_gpus(find_gpus(), pids={7, 99})
    assert sample.utilisation == pytest.approx(0.6)
    assert sample.memory_bytes == 200
    assert find_gpus()[0].name == "Tesla V100"


def test_unknown_pids_give_all_used_memory(use_nvml: Callable[..., None]) -> None:
    use_nvml()
    assert sample_gpus(find_gpus(), pids={99}).memory_bytes == 10000


def test_a_sample_that_fails_is_none(use_nvml: Callable[..., None]) -> None:
    use_nvml(nvmlDeviceGetUtilizationRates=fail)
    assert sample_gpus(find_gpus(), pids={7}) is None


def list_users(**pids: list[int]) -> Callable[[int], list[SimpleNamespace]]:
    return lambda handle: [SimpleNamespace(pid=pid, usedGpuMemory=10) for pid in pids[f"gpu{handle}"]]


def test_used_gpus_are_those_our_processes_compute_on(use_nvml: Callable[..., None]) -> None:
    use_nvml(nvmlDeviceGetComputeRunningProcesses=list_users(gpu0=[1], gpu1=[1, 7]))
    assert [gpu.handle for gpu in find_used_gpus(find_gpus(), pids={7})] == [1]
    assert find_used_gpus(find_gpus(), pids={99}) == ()


def test_in_a_container_used_gpus_are_those_of_unknown_processes(use_nvml: Callable[..., None]) -> None:
    use_nvml(nvmlDeviceGetComputeRunningProcesses=list_users(gpu0=[], gpu1=[2**22 + 5]))  # beyond the largest pid
    assert [gpu.handle for gpu in find_used_gpus(find_gpus(), pids={99})] == [1]


def test_load_has_the_memory_interface_too(use_nvml: Callable[..., None]) -> None:
    use_nvml()
    load = read_load(find_gpus(), pids={7})
    assert (load.utilisation, load.interface) == pytest.approx((0.6, 0.35))
    assert load.memory_bytes == 200


def test_gpus_that_do_not_respond_are_unused(use_nvml: Callable[..., None]) -> None:
    use_nvml(nvmlDeviceGetUtilizationRates=fail, nvmlDeviceGetComputeRunningProcesses=fail)
    assert find_used_gpus(find_gpus(), pids={7}) == ()
    assert read_load(find_gpus(), pids={7}) is None


def test_the_state_of_a_gpu_has_its_clock_and_its_other_users(
    use_nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_nvml()
    state = read_state(find_gpus()[1])
    assert state is not None
    assert (state.clock_hz, state.utilisation, state.others) == (1.38e9, 0.4, 0)
    monkeypatch.setattr("os.getpid", lambda: 7)
    shared = read_state(find_gpus()[0])
    assert shared is not None
    assert shared.others == 1
    use_nvml(nvmlDeviceGetClockInfo=fail)
    assert read_state(find_gpus()[0]) is None
