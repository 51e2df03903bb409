"""What was learned from whole models: levels, evidence and intervals."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretell.core.devices import Device, get_device
from foretell.core.errors import StoreError
from foretell.core.intervals import QuantileSpread
from foretell.core.model_files import load_model, save_model
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.steps._base import StepTimes
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.kernel_calls import Attention, Convolution, MemoryPass, Product
from foretell.steps.kernels.step_corrections import StepCorrections, load_corrections
from foretell.steps.kernels.step_intervals import QUANTILES, StepSpread
from foretell.steps.kernels.step_levels import MOST_LOG, StepLevels, name_group, name_levels
from foretell.steps.kernels.step_times import KernelStepModel

H100 = get_device("H100")
GROUP = "pass/relu/forward"
STEP = Workload(
    name="made up",
    operators=(
        Operator(
            kind="relu",
            phase=StepPhase.FORWARD,
            inputs=((4096, 65536),),
            output=(4096, 65536),
            flops=2.0**28,
            bytes_moved=2.0**31,
        ),
    )
    * 8,
)


def predict(levels: Mapping[str, float], device: Device = H100) -> float:
    model = KernelStepModel(device, corrections=StepCorrections(levels=StepLevels(levels=levels)))
    return float(model.predict([STEP])[0].kernel_s.sum())


def test_a_level_multiplies_the_kernels_of_its_group() -> None:
    assert predict({GROUP: 0.3}) == pytest.approx(np.exp(0.3) * predict({}))
    assert predict({"pass/gelu/forward": 0.3}) == predict({})


def test_levels_of_vendor_and_architecture_are_added() -> None:
    levels = {GROUP: 0.1} | {f"{name}@{H100.vendor}": 0.1 for name in (GROUP, "pass", "half")}
    levels[f"{GROUP}@{H100.architecture}"] = 0.1
    assert predict(levels) == pytest.approx(np.exp(0.4) * predict({}))
    other = get_device("MI300X")
    assert predict(levels, other) == pytest.approx(np.exp(0.1) * predict({}, other))


def test_levels_are_bounded() -> None:
    assert predict({GROUP: 9.0}) == pytest.approx(np.exp(MOST_LOG) * predict({}))


def test_alike_kernels_are_one_group() -> None:
    one = Convolution(
        images=64, channels=256, filters=256, groups=1, size_in=(14, 14), size_out=(14, 14), kernel=(3, 3),
        precision="fp16",
    )  # fmt: skip
    assert name_group(one) == name_group(replace(one, images=128))
    assert name_group(one) != name_group(replace(one, kernel=(1, 1)))
    assert name_group(one) != name_group(replace(one, groups=256))
    assert name_group(one) != name_group(replace(one, precision="fp32"))
    flash = Attention(batch=1, heads=8, key_heads=8, queries=64, keys=64, width=64)
    names = {name_group(flash), name_group(Product(rows=8, columns=8, inner=8)), name_group(one)}
    assert len(names | {name_group(MemoryPass(kind="relu", elements=8, row=8, bytes_moved=64.0))}) == 4


def test_convolutions_in_tf32_have_levels_of_their_own() -> None:
    group = "convolution/dense/single/forward/high"
    with_units, without = name_levels(group, get_device("A100-40")), name_levels(group, get_device("V100-16"))
    assert with_units[0] == group
    assert without[0] == "convolution/dense/plain/forward/high"
    half = group.replace("single", "half")
    assert name_levels(half, get_device("V100-16"))[0] == half


def test_whole_models_are_evidence_for_their_device_and_its_architecture() -> None:
    known = StepCorrections(seen={"RTX4090/half": get_device("RTX4090").architecture})
    assert known.find_evidence(get_device("RTX4090"), "bf16") is Evidence.MEASURED
    assert known.find_evidence(get_device("RTX4090"), None) is Evidence.MEASURED
    assert known.find_evidence(get_device("RTX4090"), "fp32") is Evidence.FIGURES
    assert known.find_evidence(get_device("L40S"), "fp16") is Evidence.SIMILAR
    assert known.find_evidence(H100, "fp16") is Evidence.FIGURES


# Intervals


def build_times(evidence: Evidence, *, host: float = 0.0, least_s: float = 0.0) -> StepTimes:
    none = np.zeros(0)
    return StepTimes(
        iteration_s=1.0, kernel_s=none, gap_s=none, least_s=least_s, evidence={evidence: 1.0}, limits={"host": host}
    )


@pytest.mark.parametrize("spread", [StepSpread(), load_corrections().spread], ids=["without errors", "shipped"])
def test_intervals_are_wider_the_less_is_known(spread: StepSpread) -> None:
    found = [spread.bound(build_times(evidence), 0.9) for evidence in Evidence]
    assert [each.high for each in found] == sorted(each.high for each in found)
    assert [each.low for each in found] == sorted((each.low for each in found), reverse=True)
    assert found[0].high < found[-1].high
    assert all(each.low < each.value < each.high for each in found)


def test_an_interval_is_that_of_the_learned_errors() -> None:
    errors = np.linspace(-0.4, 0.4, QUANTILES)
    spread = StepSpread(spreads={"measured": QuantileSpread(quantiles=tuple(errors.tolist()))})
    found = spread.bound(build_times(Evidence.MEASURED), 0.9)
    assert np.log([found.low, found.high]) == pytest.approx([-0.36, 0.36])


def test_no_bound_is_below_what_the_device_can_do() -> None:
    assert StepSpread().bound(build_times(Evidence.FIGURES, least_s=0.95), 0.9).low == 0.95


def test_waiting_for_the_host_and_profiles_change_the_width() -> None:
    spread = StepSpread()
    plain = spread.bound(build_times(Evidence.MEASURED), 0.9)
    assert spread.bound(build_times(Evidence.MEASURED, host=0.8), 0.9).high > plain.high
    assert spread.bound(build_times(Evidence.MEASURED), 0.9, profiles=1).high < plain.high


def test_operators_of_unknown_cost_widen_the_interval() -> None:
    model = KernelStepModel(H100, corrections=StepCorrections())
    half = tuple(replace(each, unknown=1) for each in STEP.operators[:4])
    known, unknown = model.predict([STEP, replace(STEP, operators=(*half, *STEP.operators[4:]))])
    assert unknown.unknown == pytest.approx(0.5, abs=0.05)
    assert unknown.iteration_s == pytest.approx(known.iteration_s)
    first, second = model.bound(known, 0.9), model.bound(unknown, 0.9)
    assert second.low <= first.low
    assert second.high > 1.5 * first.high


# Files


def test_a_file_gives_the_same_corrections(tmp_path: Path) -> None:
    errors = tuple(np.linspace(-0.2, 0.3, QUANTILES).round(6).tolist())
    made = StepCorrections(
        levels=StepLevels(levels={GROUP: 0.25}),
        spread=StepSpread(spreads={"figures": QuantileSpread(quantiles=errors)}),
        seen={"RTX4090/half": "Ada"},
    )
    save_model(tmp_path / "step.safetensors", made, {})
    loaded, _facts = load_model(tmp_path / "step.safetensors", [StepCorrections], remedy="write it again")
    assert loaded.levels == made.levels
    assert loaded.seen == made.seen
    assert loaded.spread.spreads["figures"].quantiles == pytest.approx(errors, abs=1e-4)


def test_a_file_with_quantiles_that_fall_is_refused(tmp_path: Path) -> None:
    falling = QuantileSpread(quantiles=tuple(np.linspace(0.3, -0.3, QUANTILES).tolist()))
    save_model(tmp_path / "step.safetensors", StepCorrections(spread=StepSpread(spreads={"figures": falling})), {})
    with pytest.raises(StoreError, match="do not rise"):
        load_model(tmp_path / "step.safetensors", [StepCorrections], remedy="write it again")


def test_the_shipped_corrections_are_bounded() -> None:
    levels = load_corrections().levels.levels
    assert all(abs(level) <= MOST_LOG for level in levels.values())
