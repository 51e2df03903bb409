"""Devices by name."""

import pytest

from foretell.core.devices import find_device, get_device, list_devices
from foretell.core.errors import NotFoundError


@pytest.mark.parametrize("name", ["T4", "t4", "Tesla T4", "tesla-t4"])
def test_a_device_has_its_drivers_name_too(name: str) -> None:
    assert get_device(name).name == "T4"


def test_names_of_one_board_are_not_those_of_another() -> None:
    assert get_device("NVIDIA A100-SXM4-40GB").memory_bytes == 40 << 30
    assert get_device("NVIDIA A100 80GB PCIe").memory_bytes == 80 << 30


def test_figures_are_those_of_gpus() -> None:
    devices = list_devices()
    assert len({device.name for device in devices}) == len(devices) >= 9
    for device in devices:
        assert device.kind == "gpu"
        assert 1e12 < device.peak_flops < 1e14
        assert 1e11 < device.bandwidth_bytes < 1e13
        assert 10 < device.units < 200
        assert 8 << 30 <= device.memory_bytes <= 80 << 30


def test_the_error_of_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match=r"no device named 'B9000'.*2080Ti.*T4.*foretell device learn"):
        get_device("B9000")
    assert find_device("B9000") is None
