"""The kernels that calibrate a device."""

from collections import Counter

import numpy as np
import pytest

from foretell.core.devices import Device, get_device, list_devices, list_precisions
from foretell.steps.kernels.calibration_kernels import (
    Pass,
    choose_kernels,
    count_bytes,
    count_flops,
)
from foretell.steps.kernels.kernel_bounds import KernelBounds
from foretell.steps.kernels.kernel_calls import Attention, Convolution, Product

DEVICES = list_devices()


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_every_type_that_the_device_has_is_measured_and_no_other(device: Device) -> None:
    chosen = choose_kernels(device)
    products = {each.precision for each in chosen if isinstance(each, Product)}
    assert products == set(list_precisions(device))
    assert len(set(chosen)) == len(chosen) > 100
    for each in chosen:
        assert count_bytes(each) <= 0.3 * device.memory_bytes
        peak = device.find_peak(getattr(each, "precision", "fp32")) or device.peak_flops
        assert count_flops(each) / peak <= 0.011  # a tenth of a second at a tenth of the peak


def test_a_part_of_them_has_every_kind() -> None:
    kinds = Counter(type(each) for each in choose_kernels(get_device("H100"))[:40])
    assert set(kinds) == {Product, Convolution, Attention, Pass}
    assert min(kinds.values()) >= 8
    types = {each.precision for each in choose_kernels(get_device("H100"))[:40]}
    assert types == {"fp32", "tf32", "bf16", "fp16", "fp8"}


@pytest.mark.parametrize(
    "call",
    [
        Product(rows=128, columns=64, inner=32, many=4),
        Attention(batch=2, heads=4, key_heads=4, queries=128, keys=128, width=64, precision="bf16"),
        Convolution(
            images=2, channels=8, filters=16, groups=2, size_in=(16, 16), size_out=(8, 8), kernel=(3, 3), stride=2
        ),
    ],
)
def test_operations_are_those_of_the_bounds(call: Product | Attention | Convolution) -> None:
    assert count_flops(call) == pytest.approx(float(KernelBounds.count([call]).flops[0]), rel=0.02)


def test_sizes_of_products_are_spread_evenly_also_in_a_part_of_them() -> None:
    """Each eighth of the range of columns has its share of the first 64 products; three quarters have many rows."""
    found = [each for each in choose_kernels(get_device("H100")) if isinstance(each, Product)]
    plain = [each for each in found if each.precision == "bf16" and each.many == 1][:64]
    many = [each.rows for each in plain if each.rows >= 128]
    assert len(plain) * 0.7 <= len(many) <= len(plain) * 0.85
    for sizes, low, bins in (([each.columns for each in plain], 64, 8), (many, 128, 6)):
        logs = np.log2(np.array(sizes) / low) / np.log2(32768 / low)
        counts, _ = np.histogram(logs, bins=bins, range=(0, 1.001))
        assert counts.min() >= 4
        assert counts.max() <= 14
    assert all(each.inner % 16 == each.columns % 16 == 0 for each in found if each.precision == "fp8")


def test_attention_is_measured_for_one_query_for_some_and_for_all() -> None:
    found = [each for each in choose_kernels(get_device("H100")) if isinstance(each, Attention)]
    one, some, all_ = (
        [each for each in found if each.queries == 1],
        [each for each in found if 1 < each.queries < each.keys],
        [each for each in found if each.queries == each.keys],
    )
    assert min(len(one), len(some)) > 0.1 * len(found)
    assert not any(each.causal or each.backward for each in (*one, *some))
    assert {(each.causal, each.backward) for each in all_} == {(a, b) for a in (False, True) for b in (False, True)}


@pytest.mark.parametrize("name", ["H100", "T4", "K80"])
def test_attention_and_products_of_one_device_are_like_those_of_another(name: str) -> None:
    mine, reference = (
        {(each.queries, each.width) for each in choose_kernels(get_device(each_name)) if isinstance(each, Attention)}
        for each_name in (name, "H100")
    )
    assert mine <= reference
    assert len(mine) >= 10
