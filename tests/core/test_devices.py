"""Devices by name."""

import pytest

from foretell.core.devices import Device, find_device, get_device, list_devices
from foretell.core.errors import NotFoundError


@pytest.mark.parametrize("name", ["T4", "t4", "Tesla T4", "tesla-t4"])
def test_a_device_has_its_drivers_name_too(name: str) -> None:
    assert get_device(name).name == "T4"


def test_names_of_one_board_are_not_those_of_another() -> None:
    assert get_device("NVIDIA A100-SXM4-40GB").memory_bytes == 40 << 30
    assert get_device("NVIDIA A100 80GB PCIe").memory_bytes == 80 << 30


DEVICES = list_devices()
NAMES = [device.name for device in DEVICES]


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_figures_are_those_of_gpus(device: Device) -> None:
    assert device.kind == "gpu"
    assert device.vendor in ("NVIDIA", "AMD", "Intel")
    assert device.architecture
    assert 2014 <= device.year <= 2026
    assert str(device.year)[:2] in device.source  # a document with its year
    assert 4e12 < device.peak_flops < 2e14
    assert 1e11 < device.bandwidth_bytes < 1e13
    assert 10 < device.units < 400
    assert 8 << 30 <= device.memory_bytes <= 288 << 30
    assert 1 << 20 < device.l2_bytes <= 128 << 20
    assert 16e9 <= device.link_bytes <= 900e9
    assert 70 <= device.power_w <= 1400


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_peaks_agree_with_units_and_clock(device: Device) -> None:
    """Each unit does a power of two of operations in each cycle, so that a figure with sparsity would be found."""
    peaks = dict(device.matrix_flops)
    assert peaks.get("fp8", 0.0) <= 2.03 * peaks.get("fp16", 1.0)
    if "tf32" in peaks:
        assert peaks["tf32"] <= 0.51 * peaks["fp16"]
        assert peaks["bf16"] == peaks["fp16"]
    if device.clock_hz and "fp16" in peaks:
        a_cycle = peaks["fp16"] / device.units / device.clock_hz
        known = MOST_A_CYCLE[device.architecture]
        assert 0.85 * min(known) < a_cycle < 1.01 * max(known)  # boards reach their highest clock in fp32 only


MOST_A_CYCLE = {
    "Maxwell": (256,),
    "Pascal": (128, 256),
    "Volta": (1024,),
    "Turing": (512, 1024),  # half of it on consumer boards
    "Ampere": (2048,),
    "Ampere GA10x": (512, 1024),
    "Ada": (512, 1024),
    "Hopper": (1024, 4096),  # the H20 is limited
    "Blackwell": (8192,),
    "Blackwell GB20x": (512, 1024),
    "CDNA": (1024,),
    "CDNA 2": (1024,),
    "CDNA 3": (2048,),
    "CDNA 4": (4096,),
    "RDNA 3": (512,),
    "Xe2": (2048,),
}


def test_the_devices_people_ask_for_are_known() -> None:
    expected = """P4 P100 V100-16 V100-32 V100-PCIe-16 V100-PCIe-32 T4 2080Ti RTX6000 RTX8000 A10 A10G A30 A40 A100-40
        A100-80 A100-PCIe-40 A100-PCIe-80 A800 A6000 RTX3090 L4 L40 L40S RTX4090 RTX6000Ada H100 H100-PCIe H100-NVL H800
        H200 GH200 B200 B300 GB200 GB300 RTX5090 RTXPRO6000 RTXPRO6000-Server RTXPRO6000-MaxQ MI100 MI210 MI250 MI250X
        MI300X MI300A MI325X MI355X Gaudi2 Gaudi3 ArcB60 K80 M60 GTX1080Ti RTX3080Ti"""
    assert set(expected.split()) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_types_are_those_that_a_device_has() -> None:
    assert get_device("A100-80").find_peak("bf16") == 312e12
    assert get_device("A100-80").find_peak("fp8") is None
    assert get_device("T4").find_peak("bf16") is None
    assert get_device("T4").find_peak("fp32") == 8.1e12
    assert get_device("MI250").find_peak("fp32") == 45.3e12  # in matrix units


def test_the_error_of_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match=r"no device named 'B9000'.*2080Ti.*T4.*foretell device learn"):
        get_device("B9000")
    assert find_device("B9000") is None
