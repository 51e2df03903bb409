"""ETS: windows over the operators in their order."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.steps.synthetic_steps import make_operator, make_workload, measure

from foretell.core.errors import MissingExtraError, StoreError
from foretell.core.workload import MeasuredStep, Operator, StepPhase, Workload
from foretell.steps import ets_training
from foretell.steps.ets import EtsModel
from foretell.steps.ets_windows import WINDOW, choose_validation, lay_windows
from foretell.steps.operator_encoding import read_times

torch = pytest.importorskip("torch")


def make_model(epochs: int = 3) -> EtsModel:
    return EtsModel(epochs=epochs, hidden=8, sample=500, max_minutes=None)


def law(operator: Operator) -> tuple[float, float]:
    return (2e-3 if operator.kind == "conv2d" else 1e-3), 1e-4


def in_turn(seed: int) -> MeasuredStep:
    """The gap is longer the more the next operator moves: unknown here it who looks at one operator alone."""
    sizes = np.random.default_rng(seed).integers(0, 8, size=30)
    operators = tuple(make_operator(moved=float(4.0**size), shape=(2, 2**size)) for size in sizes)
    kernel, gap = np.full(30, 1e-3), np.append(1e-3 * (1 + sizes[1:]), 0.0)
    start = np.cumsum(kernel + gap) - kernel - gap
    return MeasuredStep(
        workload=Workload(name=f"model {seed % 10}", operators=operators, batch=8),
        device="made up",
        iteration_s=float((kernel + gap).sum()),
        kernel_s=kernel,
        span_s=kernel,
        start_s=start,
        launch_s=start,
    )


def test_a_gap_depends_on_the_next_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ets_training, "LEARNING_RATE", 1e-2)  # few steps, so larger and more of them
    monkeypatch.setattr(ets_training, "BATCH", 32)
    model = make_model(epochs=15).fit([in_turn(seed) for seed in range(80)])
    step = in_turn(1000)
    (times,) = model.predict([step.workload])
    gaps = read_times(step).gap_s
    assert np.corrcoef(times.gap_s[:-1], gaps[:-1])[0, 1] > 0.9
    assert times.iteration_s == pytest.approx(step.iteration_s, rel=0.1)


@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, WINDOW + 1, 31])
def test_windows_cover_every_position(length: int) -> None:
    windows = lay_windows([np.arange(length), np.arange(5)])
    assert set(windows.positions[windows.mask].tolist()) == set(range(length + 5))
    assert (windows.owner[windows.positions] == windows.step[:, None]).all()
    assert (windows.positions.max(axis=1) - windows.positions.min(axis=1) < WINDOW).all()


def test_equal_windows_are_computed_once() -> None:
    workload = Workload(name="a", operators=(make_operator(),) * 60)
    model = make_model(epochs=1).fit([measure(workload, law)] * 4)
    (times,) = model.predict([workload])
    assert np.ptp(times.kernel_s[WINDOW:-WINDOW:4]) == pytest.approx(0, abs=1e-12)


def test_unrecorded_operators_are_left_out() -> None:
    def hidden(operator: Operator) -> bool:
        return operator.kind == "linear" and operator.phase is StepPhase.BACKWARD

    model = make_model().fit([measure(make_workload(seed), law, hidden=hidden) for seed in range(20)])
    assert model.unrecorded_ == {("linear", StepPhase.BACKWARD)}
    workload = make_workload(99)
    (times,) = model.predict([workload])
    left_out = np.array([hidden(operator) for operator in workload.operators])
    assert left_out.any()
    assert (times.kernel_s[left_out] == 0).all()
    assert (times.kernel_s[~left_out] > 0).all()
    assert times.kernel_s.sum() + times.gap_s.sum() == pytest.approx(times.iteration_s)


def test_unknown_kinds_and_short_steps_are_predicted() -> None:
    model = make_model().fit([measure(make_workload(seed), law) for seed in range(20)])
    strange = make_operator("never_seen")
    short = Workload(name="short", operators=(strange,), settings={"optimizer": "new"})
    long = replace(make_workload(5), operators=(*make_workload(5).operators, strange))
    predicted = model.predict([short, Workload(name="empty", operators=()), long])
    assert [len(times.kernel_s) for times in predicted] == [1, 0, 25]
    assert all(np.isfinite(times.iteration_s) for times in predicted)
    assert all((times.gap_s >= 0).all() for times in predicted)
    assert model.predict([]) == []


def test_steps_are_predicted_alike_alone_and_together() -> None:
    model = make_model().fit([measure(make_workload(seed), law) for seed in range(20)])
    workloads = [make_workload(seed) for seed in (50, 51)]
    together = [times.iteration_s for times in model.predict(workloads)]
    assert [model.predict([workload])[0].iteration_s for workload in workloads] == pytest.approx(together)


def test_same_seed_gives_the_same_predictions_and_restores_torch() -> None:
    steps = [measure(make_workload(seed), law) for seed in range(10)]
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    first, second = (make_model().fit(steps).predict([make_workload(70)])[0].iteration_s for _ in range(2))
    assert first == second
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_training_continues_from_its_checkpoint(tmp_path: Path) -> None:
    steps = [measure(make_workload(seed), law) for seed in range(10)]
    path = tmp_path / "training"
    first = EtsModel(epochs=2, hidden=8, sample=500, max_minutes=None, checkpoint=path).fit(steps)
    second = EtsModel(epochs=4, hidden=8, sample=500, max_minutes=None, checkpoint=path).fit(steps)
    whole = EtsModel(epochs=4, hidden=8, sample=500, max_minutes=None).fit(steps)
    assert (first.epochs_, second.epochs_) == (2, 4)
    assert second.validation_error_ == whole.validation_error_
    for name, values in whole.weights_.items():
        np.testing.assert_array_equal(second.weights_[name], values)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    steps = [measure(make_workload(seed), law) for seed in range(4)]
    path = tmp_path / "training"
    EtsModel(epochs=1, hidden=8, sample=500, max_minutes=None, checkpoint=path).fit(steps)
    with pytest.raises(StoreError, match="delete it"):
        EtsModel(epochs=2, hidden=4, sample=500, max_minutes=None, checkpoint=path).fit(steps)


def test_validation_models_are_not_used_for_fitting() -> None:
    steps = [measure(replace(make_workload(seed), name=f"model {seed % 5}"), law) for seed in range(20)]
    aside = choose_validation(steps, np.random.default_rng(0))
    names = np.array([step.workload.name for step in steps])
    assert set(names[aside]).isdisjoint(names[~aside])
    assert aside.any()


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"foretell\[torch\]"):
        make_model().fit([measure(make_workload(1), law)])
