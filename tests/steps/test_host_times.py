"""The model of the host finds known times and waits."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.steps.synthetic_steps import make_operator

from foretell.core.workload import MeasuredStep, StepPhase, Workload
from foretell.steps.host_times import HostModel, name_operator

BEFORE = {"conv2d": 80e-6, "relu": 20e-6, "linear": 50e-6, "gelu": 30e-6}
AFTER = {"conv2d": 40e-6, "relu": 10e-6, "linear": 60e-6, "gelu": 25e-6}
VIEW, LATENCY, SHORT = 15e-6, 8e-6, 2e-6


def make_step(kinds: Sequence[str], *, views: Sequence[int] = (), hidden: Iterable[int] = ()) -> MeasuredStep:
    """A step whose device is done with each kernel before the host launches the next one."""
    calls = views or [0] * len(kinds)
    steps = [0.0] + [
        AFTER[before] + BEFORE[kind] + count * VIEW
        for before, kind, count in zip(kinds, kinds[1:], calls[1:], strict=False)
    ]
    launch = np.cumsum(steps)
    return lay(
        kinds, launch=launch, start=launch + LATENCY, seconds=np.full(len(kinds), SHORT), hidden=hidden, views=views
    )


def lay(
    kinds: Sequence[str],
    *,
    launch: np.ndarray,
    start: np.ndarray,
    seconds: np.ndarray,
    hidden: Iterable[int] = (),
    views: Sequence[int] = (),
) -> MeasuredStep:
    unknown = np.isin(np.arange(len(kinds)), list(hidden))
    launch, start, seconds = (np.where(unknown, np.nan, values) for values in (launch, start, seconds))
    workload = Workload(name="made up", operators=tuple(map(make_operator, kinds)), views=tuple(views))
    return MeasuredStep(
        workload=workload, device="made up", iteration_s=1.0, kernel_s=seconds, span_s=seconds, start_s=start,
        launch_s=launch,
    )  # fmt: skip


def shuffle(seed: int, length: int = 60) -> list[str]:
    return [str(kind) for kind in np.random.default_rng(seed).choice(list(BEFORE), size=length)]


def ask(model: HostModel, *kinds: str, views: Sequence[int] = ()) -> list[float]:
    workload = Workload(name="asked", operators=tuple(map(make_operator, kinds)), views=tuple(views))
    found: list[float] = model.predict(workload).step_s.tolist()
    return found


def test_times_between_known_calls_are_found() -> None:
    model = HostModel().fit([make_step(shuffle(seed)) for seed in range(4)])
    for before in BEFORE:
        for kind in BEFORE:
            assert ask(model, before, kind)[1] == pytest.approx(AFTER[before] + BEFORE[kind])


def test_unmeasured_pairs_are_sums_of_their_calls() -> None:
    """Of a pair that never was, one call's rest and the other's begin are known from other pairs."""
    known = [("conv2d", "relu"), ("relu", "relu"), ("relu", "linear"), ("linear", "relu")]
    model = HostModel().fit([make_step(pair) for pair in known] * 200)
    assert ask(model, "conv2d", "linear")[1] == pytest.approx(AFTER["conv2d"] + BEFORE["linear"], rel=0.05)


def test_views_take_time() -> None:
    random = np.random.default_rng(0)
    steps = [make_step(shuffle(seed), views=random.integers(0, 4, size=60).tolist()) for seed in range(6)]
    model = HostModel().fit(steps)
    few, many = (ask(model, "relu", "linear", views=[0, count])[1] for count in (0, 10))
    assert many - few == pytest.approx(10 * VIEW, rel=0.1)


def test_unrecorded_calls_share_the_time_between_their_neighbours() -> None:
    """No pair with a gelu is ever timed; what it takes in all is."""
    steps = [make_step(["conv2d", "gelu", "relu"], hidden=[1])] * 30
    steps += [make_step(["conv2d", "relu", "relu", "conv2d", "conv2d"])] * 30
    predicted = sum(ask(HostModel().fit(steps), "conv2d", "gelu", "relu")[1:])
    assert predicted == pytest.approx(AFTER["conv2d"] + BEFORE["gelu"] + AFTER["gelu"] + BEFORE["relu"], rel=0.1)


def test_an_unknown_call_has_the_median_of_its_phase() -> None:
    model = HostModel().fit([make_step(shuffle(seed)) for seed in range(4)])
    before, after = model.common_["forward"]
    assert ask(model, "relu", "never_seen")[1] == pytest.approx(model.after_["forward/relu"] + before)
    workload = Workload(name="", operators=(replace(make_operator("never_seen"), kernels=3), make_operator("relu")))
    predicted = model.predict(workload).step_s[1]
    assert predicted == pytest.approx(3 * after + model.before_["forward/relu"])  # it launches all of its kernels


def test_an_unknown_phase_has_the_median_of_all() -> None:
    model = HostModel().fit([make_step(shuffle(0))])
    assert model.common_["update"] == model.common_["forward"]


def test_the_launch_latency_is_found() -> None:
    assert HostModel().fit([make_step(shuffle(0))]).latency_s_ == pytest.approx(LATENCY)


def test_the_time_between_launches_of_an_operator_is_found() -> None:
    step = make_step(["relu", "gelu"] * 10)
    wide = np.array([name_operator(one) == "forward/gelu" for one in step.workload.operators])
    model = HostModel().fit([replace(step, span_s=step.kernel_s + np.where(wide, 5e-6, 0.0))])
    asked = Workload(name="", operators=(make_operator("relu"), make_operator("gelu"), make_operator("new")))
    assert model.predict(asked).within_s == pytest.approx([0.0, 5e-6, 0.0], abs=1e-12)


def make_waiting(times: Mapping[int, float], *, length: int = 12, kernel_s: float = 5e-3) -> MeasuredStep:
    """A device far behind; before the calls named, the host waits for it, and continues so much later."""
    kinds = ["conv2d", "batch_norm"] * (length // 2)
    launch, start = [0.0], [LATENCY]
    for place in range(1, length):
        free = start[-1] + kernel_s
        launch.append(free + times[place] if place in times else launch[-1] + 50e-6)
        start.append(max(free, launch[-1] + LATENCY))
    return lay(kinds, launch=np.array(launch), start=np.array(start), seconds=np.full(length, kernel_s))


def test_a_call_that_always_waits_is_found() -> None:
    model = HostModel().fit([make_waiting(dict.fromkeys(range(1, 12, 2), 300e-6))] * 2)
    asked = Workload(name="", operators=tuple(map(make_operator, ("conv2d", "batch_norm", "relu"))))
    times = model.predict(asked)
    assert times.waits.tolist() == [False, True, False]
    assert times.after_wait_s == pytest.approx([0.0, 300e-6, 0.0])


def test_a_call_that_waits_now_and_then_does_not_wait() -> None:
    model = HostModel().fit([make_waiting(dict.fromkeys(range(1, 12, 4), 300e-6))] * 4)
    assert model.after_wait_ == {}


def test_few_waits_do_not_count() -> None:
    model = HostModel().fit([make_waiting(dict.fromkeys(range(1, 8, 2), 300e-6), length=8)])
    assert model.after_wait_ == {}


def test_waits_do_not_count_as_time_of_the_host() -> None:
    busy = make_waiting(dict.fromkeys(range(1, 12, 2), 300e-6))
    idle = [make_step(shuffle(seed)) for seed in range(3)]
    assert ask(HostModel().fit([*idle, busy, busy]), "relu", "conv2d") == ask(HostModel().fit(idle), "relu", "conv2d")


def test_a_slower_host_takes_longer_by_one_factor() -> None:
    model = HostModel().fit([make_step(shuffle(0), views=[1] * 60), *[make_waiting({1: 3e-4, 3: 3e-4, 5: 3e-4})] * 2])
    asked = ("conv2d", "relu", "never_seen", "gelu", "conv2d")
    slow = ask(model.scale(2.0), *asked, views=[0, 3, 1, 0, 2])
    assert slow == pytest.approx([2 * seconds for seconds in ask(model, *asked, views=[0, 3, 1, 0, 2])])
    assert model.scale(2.0).latency_s_ == model.latency_s_


def test_a_record_is_the_whole_model() -> None:
    steps = [make_step(shuffle(seed), views=[seed] * 60) for seed in range(3)]
    model = HostModel().fit([*steps, *[make_waiting(dict.fromkeys(range(1, 12, 2), 300e-6))] * 2])
    again = HostModel.from_record(json.loads(json.dumps(model.to_record())))
    operators = tuple(map(make_operator, (*BEFORE, "batch_norm", "never_seen")))
    workload = Workload(name="", operators=(*operators, make_operator("new", phase=StepPhase.UPDATE)))
    first, second = model.predict(workload), again.predict(workload)
    for name in ("step_s", "within_s", "waits", "after_wait_s"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()
    assert again.latency_s_ == model.latency_s_


def test_an_empty_model_predicts_zero() -> None:
    assert ask(HostModel().fit([]), "relu", "relu") == [0.0, 0.0]
