"""Devices by name."""

from dataclasses import replace

import pytest

from foretell.core.devices import (
    Device,
    check_precision,
    find_device,
    get_device,
    list_devices,
    list_precisions,
)
from foretell.core.errors import NotFoundError, SpecError

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


SPELLINGS = {
    "T4": ["T4", "t4", "Tesla T4", "tesla-t4", "NVIDIA T4 16GB"],
    "2080Ti": ["NVIDIA GeForce RTX 2080 Ti", "rtx 2080ti", "2080 Ti 11GB"],
    "RTX4090": ["rtx 4090", "RTX4090", "4090", "NVIDIA GeForce RTX 4090", "GeForce RTX 4090 24GB"],
    "H100": ["nvidia h100 80gb hbm3", "H100 SXM5", "h100-sxm5-80gb", "DGX H100"],
    "H100-PCIe": ["NVIDIA H100 PCIe", "h100 pcie 80gb"],
    "H100-NVL": ["NVIDIA H100 NVL", "h100 nvl 94GB"],
    "A100-80": ["A100", "a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", "80GB A100", "A100 80GiB"],
    "A100-40": ["a100 40gb", "NVIDIA A100-SXM4-40GB"],
    "A100-PCIe-40": ["NVIDIA A100-PCIE-40GB"],
    "A100-PCIe-80": ["NVIDIA A100 80GB PCIe", "a100 pcie"],
    "V100-16": ["V100", "Tesla V100-SXM2-16GB"],
    "V100-32": ["v100 32gb"],
    "V100-PCIe-32": ["Tesla V100-PCIE-32GB"],
    "RTX6000": ["Quadro RTX 6000"],
    "RTX6000Ada": ["NVIDIA RTX 6000 Ada Generation"],
    "RTXPRO6000-MaxQ": ["NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx pro 6000 max-q"],
    "GH200": ["NVIDIA GH200 480GB"],
    "B200": ["NVIDIA B200", "b200 192GB"],  # its driver reports 180 GB
    "MI300X": ["AMD Instinct MI300X", "AMD Instinct MI300X OAM", "AMD Instinct MI300X VF", "mi300x"],
    "MI250X": ["AMD Instinct MI250X / MI250"],
    "Gaudi2": ["gaudi 2", "Intel Gaudi2"],
    "ArcB60": ["Intel(R) Arc(TM) Pro B60 Graphics", "arc b60"],
}


@pytest.mark.parametrize(("name", "written"), [(name, each) for name, written in SPELLINGS.items() for each in written])
def test_names_are_understood_as_people_and_drivers_write_them(name: str, written: str) -> None:
    assert get_device(written).name == name


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_a_name_of_the_catalogue_is_that_of_its_device(device: Device) -> None:
    assert get_device(device.name) is device
    assert get_device(device.name.lower().replace("-", " ")) is device


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",  # a part of it
        "NVIDIA A100-SXM-64GB",
        "RTX 3080 Laptop GPU",
        "RTX 4090 D",
        "P100 12GB",
        "",
        "-",
    ],
)
def test_another_board_is_not_taken_for_one_that_is_known(name: str) -> None:
    assert find_device(name) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [("H1000", "H100"), ("RTX 4095", "RTX4090"), ("T9", "T4"), ("mi300", "MI300X"), ("A100 64GB", "A100-80")],
)
def test_similar_names_are_suggested(name: str, meant: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        get_device(name)
    assert meant in caught.value.similar
    assert f"no device named {name!r}. Did you mean" in str(caught.value)
    for remedy in ("foretell device list", "--device my-gpu.toml", "--device-figures", "foretell device learn"):
        assert remedy in str(caught.value)
    assert len(caught.value.known) == len(DEVICES)


def test_nothing_is_suggested_for_what_is_like_nothing() -> None:
    with pytest.raises(NotFoundError, match=r"no device named .abacus.\. .foretell device list"):
        get_device("abacus")


@pytest.mark.parametrize(
    ("device", "precision", "have"),
    [
        ("A100", "fp8", "fp32, tf32, fp16 or bf16 there (H100"),
        ("T4", "bf16", "fp32 or fp16 there (A100"),
        ("2080Ti", "pure-bf16", "fp32 or fp16 there"),
        ("V100", "bf16", "fp32 or fp16 there"),
        ("V100", "tf32", "fp32 or fp16 there"),
        ("K80", "fp16", "expected fp32 there"),
        ("H100", "fp4", "tf32, fp16, bf16 or fp8 there"),
        ("MI355X", "tf32", "MI300X"),
    ],
)
def test_a_type_that_a_device_lacks_is_refused(device: str, precision: str, have: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_precision(get_device(device), precision)
    assert f"precision: found {precision} on {get_device(device).name}; expected" in str(caught.value)
    assert have in str(caught.value)


def test_types_that_a_device_has_are_accepted() -> None:
    for device in DEVICES:
        for precision in list_precisions(device):
            check_precision(device, precision)
    check_precision(get_device("H100"), "pure-bf16")
    check_precision(replace(get_device("T4"), kind="cpu", matrix_flops=()), "bf16")
