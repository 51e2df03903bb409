"""Fused attention by the library whose kernels run."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.core.devices import get_device
from foretell.steps.kernels.attention_times import AttentionTimeModel
from foretell.steps.kernels.kernel_calls import FLASH_2, Attention
from foretell.steps.kernels.shipped_models import load_kernel_models

_CALL = Attention(batch=2, heads=32, key_heads=8, queries=4096, keys=4096, width=128, causal=True)
_FLASH = replace(_CALL, library=FLASH_2)


@pytest.fixture(scope="module")
def model() -> AttentionTimeModel:
    found = load_kernel_models()["attention"]
    assert isinstance(found, AttentionTimeModel)
    return found


@pytest.mark.parametrize(("device", "slower"), [("H100", True), ("H200", True), ("A100", False), ("B200", False)])
def test_flash_attention_2_is_slower_on_hopper_only(model: AttentionTimeModel, device: str, slower: bool) -> None:
    own, flash = model.predict([_CALL, _FLASH], get_device(device))
    assert flash / own == pytest.approx(1.9 if slower else 1.0)


def test_generated_text_is_limited_by_memory(model: AttentionTimeModel) -> None:
    one = replace(_FLASH, queries=1)
    found = model.predict([one, replace(one, library="")], get_device("H100"))
    assert found[0] == found[1]


def test_a_calibration_measures_the_library_that_ran(model: AttentionTimeModel) -> None:
    device = get_device("H100")
    calls = [replace(_FLASH, queries=size, keys=size) for size in (512, 1024, 2048, 4096, 8192)]
    measured = 1.3 * model.predict(calls, device)
    calibrated = model.calibrate(calls, device, measured)
    assert np.median(calibrated.predict(calls, device) / measured) == pytest.approx(1.0, abs=0.1)
