"""Factors of the parts of steps are found again, and correct steps that were not measured."""

import numpy as np
import pytest

from foretell.core.devices import get_device
from foretell.core.errors import SpecError
from foretell.core.layouts import Layout
from foretell.core.prediction import Estimate
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.parallel_results import ParallelStep
from foretell.distributed.step_factors import StepFactors

_TOPOLOGY = Topology(device=get_device("A100"))


def _build(random: np.random.Generator) -> ParallelStep:
    tensor, stages, copies = (int(2 ** random.integers(0, 4)) for _ in range(3))
    layout = Layout(
        gpus=tensor * stages * copies,
        data_parallel="ddp" if copies > 1 else "",
        tensor_parallel=tensor,
        pipeline_parallel=stages,
    )
    batches = stages * int(2 ** random.integers(0, 3))
    compute = float(random.uniform(0.05, 0.5)) * batches
    parts = {
        "compute": compute,
        "tensor": compute * float(random.uniform(0.05, 0.3)) * (tensor > 1),
        "data": 0.02 * (copies > 1),
        "bubble": compute * (stages - 1) / batches,
        "host": 0.0,
    }
    whole = sum(parts.values())
    return ParallelStep(
        workload=Workload(name="law", operators=(), batch=int(2 ** random.integers(0, 4))),
        layout=layout,
        topology=_TOPOLOGY,
        step=Estimate(value=whole, low=0.8 * whole, high=1.3 * whole, level=0.9),
        parts=parts,
        micro_batches=batches,
        host_s=0.02,
    )


def _measure(step: ParallelStep) -> float:
    """A machine that computes a fifth slower, and exchanges twice as slowly."""
    each = (1.2 * step.parts["compute"] + 2.0 * step.parts["tensor"]) / step.micro_batches
    waits = step.parts["bubble"] / ((step.parts["compute"] + step.parts["tensor"]) / step.micro_batches)
    return (step.micro_batches + waits) * each + step.parts["data"]


def test_factors_of_a_law_are_found_again() -> None:
    random = np.random.default_rng(0)
    steps = [_build(random) for _ in range(40)]
    learned = StepFactors().fit(steps, [_measure(step) for step in steps])
    assert learned.factors["compute"] == pytest.approx(1.2, rel=0.05)
    assert learned.factors["tensor"] == pytest.approx(2.0, rel=0.15)


def test_steps_that_were_not_measured_are_corrected() -> None:
    random = np.random.default_rng(1)
    steps = [_build(random) for _ in range(60)]
    measured = [_measure(step) for step in steps]
    learned = StepFactors().fit(steps[:20], measured[:20])
    found = learned.predict(steps[20:])
    errors = [abs(each.value / seconds - 1) for each, seconds in zip(found, measured[20:], strict=True)]
    before = [abs(step.step.value / seconds - 1) for step, seconds in zip(steps[20:], measured[20:], strict=True)]
    assert np.mean(errors) < 0.03 < np.mean(before)


def test_one_odd_measurement_changes_little() -> None:
    random = np.random.default_rng(2)
    steps = [_build(random) for _ in range(30)]
    measured = [_measure(step) for step in steps]
    odd = [3 * measured[0], *measured[1:]]
    clean, disturbed = (StepFactors().fit(steps, some).factors["compute"] for some in (measured, odd))
    assert disturbed == pytest.approx(clean, rel=0.08)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([1.0, 1.0], "found 2 steps; expected 3 or more"),
        ([1.0, 0.0, 1.0], "found 0; expected a finite time above 0"),
        ([1.0, float("nan"), 1.0], "found nan; expected a finite time above 0"),
    ],
)
def test_impossible_measurements_are_refused(seconds: list[float], expected: str) -> None:
    step = _build(np.random.default_rng(3))
    with pytest.raises(SpecError, match=expected):
        StepFactors().fit([step] * len(seconds), seconds)


def test_each_step_has_a_time() -> None:
    step = _build(np.random.default_rng(3))
    with pytest.raises(SpecError, match="found 2 times; expected one for each of the 4 steps"):
        StepFactors().fit([step] * 4, [1.0, 1.0])
