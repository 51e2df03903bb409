"""Pipelines: every batch once on every stage, and as long as their papers say."""

from collections import Counter

import numpy as np
import pytest

from foretell.core.devices import get_device
from foretell.core.errors import SpecError
from foretell.core.layouts import Layout
from foretell.core.topology import Group, LayoutGroups, Topology
from foretell.core.workload import Floats, Operator, StepPhase, Workload
from foretell.distributed import step_schedule
from foretell.distributed.collective_times import Collective
from foretell.distributed.pipeline_orders import Turn, order_turns, place_units
from foretell.distributed.shared_steps import share_step
from foretell.distributed.step_schedule import OperatorSeconds, StepSchedule
from foretell.distributed.step_units import StepUnits

FORWARD_S, BACKWARD_S = 1.0, 2.0
SHAPES = [(stages, interleave, batches) for stages in (2, 4) for interleave in (1, 2, 3) for batches in (4, 8, 12)]


def build_schedule(
    stages: int, *, interleave: int = 1, layers: int = 0, send_s: float = 0.0, uneven: bool = False
) -> StepSchedule:
    """Equal layers, each with one operator forward and one backward; as many as parts of the model by default."""
    layers = layers or stages * interleave
    names = [f"layers.{number}" for number in range(layers)]
    operators = [
        Operator(kind="linear", phase=phase, inputs=((4, 8), (8, 8)), output=(4, 8))
        for phase in (StepPhase.FORWARD, StepPhase.BACKWARD)
    ]
    workload = Workload(
        name="tower",
        operators=(*[operators[0]] * layers, *[operators[1]] * layers),
        layers=(*names, *reversed(names)),
        batch=4,
    )
    layout = Layout(
        gpus=stages,
        pipeline_parallel=stages,
        interleave=interleave,
        micro_batches=stages if stages > 1 else 0,
    )
    forward: Floats = np.full(layers, FORWARD_S * stages / layers)
    backward: Floats = np.full(layers, BACKWARD_S * stages / layers)
    if uneven:
        forward, backward = (each * np.linspace(0.5, 1.7, layers) for each in (forward, backward[::-1]))
    device = np.concatenate([forward, backward])
    seconds = OperatorSeconds(device=device, host=np.zeros(2 * layers), exchange=np.zeros(2 * layers))
    groups = LayoutGroups.place(layout, Topology(device=get_device("H100")))

    def exchange(operation: Collective, bytes_: float, group: Group) -> float:
        return send_s if operation is Collective.SEND else 0.0

    return StepSchedule(share_step(workload, layout), seconds, groups, exchange)


@pytest.mark.parametrize(("stages", "interleave", "batches"), SHAPES)
def test_each_batch_is_once_in_each_part_forward_and_then_backward(stages: int, interleave: int, batches: int) -> None:
    for stage in range(stages):
        turns = list(order_turns(stage, stages=stages, interleave=interleave, batches=batches))
        expected = {
            Turn(forward, batch, part * stages + stage)
            for forward in (True, False)
            for batch in range(batches)
            for part in range(interleave)
        }
        assert Counter(turns) == Counter(expected)
        places = {turn: place for place, turn in enumerate(turns)}
        for turn in expected:
            assert places[Turn(True, turn.batch, turn.chunk)] < places[Turn(False, turn.batch, turn.chunk)]


def test_a_stage_has_no_more_batches_in_work_than_stages_are_left() -> None:
    stages, batches = 4, 16
    for stage in range(stages):
        begun = most = 0
        for turn in order_turns(stage, stages=stages, interleave=1, batches=batches):
            begun += 1 if turn.forward else -1
            most = max(most, begun)
        assert most == stages - stage


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("batches", [1, 2, 5, 8, 64])
def test_equal_stages_wait_for_as_many_batches_as_there_are_other_stages(stages: int, batches: int) -> None:
    expected = (batches + stages - 1) * (FORWARD_S + BACKWARD_S)
    assert build_schedule(stages).measure(batches) == pytest.approx(expected)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("interleave", [2, 3, 4])
@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
def test_parts_of_stages_make_the_bubble_as_many_times_smaller(stages: int, interleave: int, rounds: int) -> None:
    batches = rounds * stages
    whole = build_schedule(stages, interleave=interleave).measure(batches)
    bubble = (stages - 1) * (FORWARD_S + BACKWARD_S) / interleave
    assert whole == pytest.approx(batches * (FORWARD_S + BACKWARD_S) + bubble)


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("batches", [24, 28, 60])
@pytest.mark.parametrize(("send_s", "uneven"), [(0.0, True), (0.3, False), (0.3, True)])
def test_rounds_that_are_not_replayed_take_as_long(
    interleave: int, batches: int, send_s: float, *, uneven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = build_schedule(4, interleave=interleave, send_s=send_s, uneven=uneven)
    short = schedule.measure(batches)
    monkeypatch.setattr(step_schedule, "_STEADY", 1000)
    assert short == pytest.approx(schedule.measure(batches), rel=0.02)


def test_sending_makes_it_longer_and_the_slowest_stage_is_the_least() -> None:
    free, sent = build_schedule(4), build_schedule(4, send_s=0.1)
    assert sent.measure(8) > free.measure(8)
    uneven = build_schedule(4, uneven=True)
    _, seconds = uneven.find_slowest(8)
    assert seconds <= uneven.measure(8)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(SpecError, match="at most 2, the repeated layers of tower"):
        build_schedule(4, layers=2)


@pytest.mark.parametrize(
    ("layers", "stages", "interleave", "said"),
    [
        (2, 2, 2, "expected at most 1 with interleave=2: tower has 3 modules to divide"),
        (0, 2, 1, "expected 1: tower has no repeated layers"),
    ],
)
def test_what_cannot_be_divided_is_named(layers: int, stages: int, interleave: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        place(layers, stages=stages, interleave=interleave, around=1)


@pytest.mark.parametrize(("layers", "around"), [(4, 0), (4, 2), (3, 2), (0, 4), (0, 7)])
def test_no_part_of_an_interleaved_pipeline_is_empty(layers: int, around: int) -> None:
    assert sorted(set(place(layers, stages=2, interleave=2, around=around).tolist())) == [0, 1, 2, 3]


def place(layers: int, *, stages: int, interleave: int, around: int) -> np.ndarray:
    """Parts of equal units, of which some are no layers."""
    names = [f"begin{number}" for number in range(around)] + [f"layers.{number}" for number in range(layers)]
    numbers = np.arange(len(names))
    units = StepUnits(
        names=tuple(names),
        numbered=tuple(name.startswith("layers") for name in names),
        unit_of=numbers,
        pass_of=np.zeros(len(names), dtype=int),
    )
    layout = Layout(gpus=stages, pipeline_parallel=stages, interleave=interleave)
    return place_units(units, layout, np.ones(len(names)), name="tower")
