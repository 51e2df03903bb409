"""A user's own device, from a file or from a line of figures."""

from pathlib import Path

import pytest

from foretell.core.device_figures import EXAMPLE, open_device, parse_device_figures, read_device_file
from foretell.core.devices import get_device, list_precisions
from foretell.core.errors import NotFoundError, SpecError


def test_a_line_of_figures_is_a_device() -> None:
    device = parse_device_figures(EXAMPLE)
    assert device.find_peak("bf16") == device.find_peak("fp16") == 400e12
    assert device.peak_flops == 50e12  # an eighth, because nothing was said of it
    assert (device.bandwidth_bytes, device.memory_bytes, device.units) == (2e12, 48 << 30, 100)
    assert list_precisions(device) == ("fp32", "fp16", "bf16")
    assert (device.name, device.source) == ("own device", "--device-figures")


@pytest.mark.parametrize(
    "text",
    [
        "fp32=20e12,bf16=0.4P,fp8=800 TFLOPS,bandwidth=2TB/s,memory=48GB,units=100,clock=1.8GHz,power=350W,link=64GB/s",
        " FP32 = 20T, bf16=400T, fp8=8e14, bandwidth=2000GB/s, memory=49152MB, units=100, clock=1800MHz, power=350,"
        "link=64e9,",
    ],
)
def test_figures_may_have_units(text: str) -> None:
    device = parse_device_figures(text)
    assert device.peak_flops == pytest.approx(20e12)
    assert dict(device.matrix_flops) == pytest.approx({"fp16": 400e12, "bf16": 400e12, "fp8": 800e12})
    assert device.bandwidth_bytes == pytest.approx(2e12)
    assert device.memory_bytes == 48 << 30
    assert (device.clock_hz, device.power_w, device.link_bytes) == pytest.approx((1.8e9, 350.0, 64e9))


def test_a_device_may_be_like_another_one(tmp_path: Path) -> None:
    path = tmp_path / "fast-h100.toml"
    path.write_text('like = "h100 sxm"\nbandwidth = 4e12\nmemory = "96GB"\nfp8 = "2000 TFLOPS"\n')
    device, base = open_device(str(path)), get_device("H100")
    assert (device.name, device.bandwidth_bytes, device.memory_bytes) == ("fast-h100", 4e12, 96 << 30)
    assert dict(device.matrix_flops) == {**dict(base.matrix_flops), "fp8": 2000e12}
    assert (device.units, device.architecture, device.peak_flops) == (base.units, base.architecture, base.peak_flops)
    assert device.source == str(path)


def test_a_file_names_its_device(tmp_path: Path) -> None:
    path = tmp_path / "my-gpu.toml"
    path.write_text(
        'name = "Prototype"\nbf16 = 400e12\nbandwidth = "2TB/s"\nmemory = "48GB"\nunits = 100\nyear = 2026\n'
        'architecture = "Own"\nvendor = "Me"\nsource = "measured"\nl2 = "50MB"\nnetwork = 50e9\n'
    )
    device = read_device_file(path)
    assert (device.name, device.year, device.architecture, device.vendor) == ("Prototype", 2026, "Own", "Me")
    assert (device.source, device.l2_bytes, device.network_bytes) == ("measured", 50 << 20, 50e9)


def test_other_names_are_those_of_the_catalogue() -> None:
    assert open_device("rtx 4090").name == "RTX4090"
    with pytest.raises(NotFoundError, match="Did you mean H100"):
        open_device("H1000")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bf16=400,bandwidth=2e12,memory=48GB,units=100", ["bf16: found '400'", "400e12 or 400T"]),
        ("bf16=400 GB/s,bandwidth=2e12,memory=48GB,units=100", ["bf16: found '400 GB/s'"]),
        ("bf16=nan,bandwidth=-1,memory=48,units=1.5", ["'nan'", "'-1'", "'48'", "a size, such as 48GB", "'1.5'"]),
        (
            "bf16=4e14,bandwith=2e12,memory=48GB,units=1",
            ["'bandwith'", "bandwidth, memory", "bandwidth: found nothing"],
        ),
        ("", ["bf16: found nothing", "memory: found nothing", "units: found nothing", "or like=H100"]),
        ("bf16", ["found 'bf16'", EXAMPLE]),
        ("bf16=4e14,bf16=3e14", ["bf16 twice"]),
        (f"name=h100 80gb,{EXAMPLE}", ["name: found 'h100 80gb'", "not in the catalogue"]),
    ],
)
def test_figures_that_cannot_be_used_are_all_listed(text: str, expected: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_device_figures(text)
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["bf16 = [", "units = 1979-05-27", "bf16 = true\nunits = true\nmemory = [1]", "\0"])
def test_a_file_that_cannot_be_used_is_one_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "my-gpu.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"my-gpu\.toml: \d+ mistakes?\n"):
        open_device(str(path))


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no device file named '.*none\.toml'. Write one, for example:\n +bf16 ="):
        open_device(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(SpecError, match="TOML file of figures"):
        open_device(str(tmp_path / "folder.toml"))
