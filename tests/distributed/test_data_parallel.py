"""Steps of data-parallel training, from laws known beforehand."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from foretell.core.devices import Device
from foretell.core.errors import ImportDataError, NotFoundError
from foretell.distributed.data_parallel import ParallelModel
from foretell.distributed.measured_range import split_by_cluster, split_by_gpus
from foretell.distributed.placed_steps import PlacedStep, TimedStep

pytestmark = pytest.mark.slow

HOST_S = {"large": 0.02, "small": 0.004}
SAMPLE_S = {"large": 0.01, "small": 0.0005}  # on a device of speed 1
BYTES = {"large": 4e8, "small": 4e7}
SPEED = {"old": 1.0, "mid": 1.5, "new": 3.0, "best": 4.0}
BUS, LINK, HOP_S = 1e10, 4e9, 1e-4
OVERLAP = 0.5  # of computing
FEW = ((1,), (2,), (3,), (4,), (1, 1), (1, 2), (2, 2), (1, 1, 1), (1, 1, 1, 1))
MANY = ((8,), (4, 4), (8, 8), (2, 2, 2, 2))
BATCHES = (4, 8, 16, 32)


def place(workload: str, cluster: str, gpus: tuple[int, ...], batch: float) -> PlacedStep:
    speed = SPEED[cluster]
    device = Device(
        name=cluster, kind="gpu", peak_flops=speed * 1e13, bandwidth_bytes=speed * 3e11, units=40, memory_bytes=16 << 30
    )
    return PlacedStep(workload=workload, cluster=cluster, batch=batch, gpus=gpus, device=device, link_bytes_per_s=LINK)


def measure(step: PlacedStep, *, bus: float = BUS) -> TimedStep:
    """The law: a ring of all GPUs, half of computing to hide behind."""
    count = sum(step.gpus)
    compute = max(HOST_S[step.workload], SAMPLE_S[step.workload] * step.batch / SPEED[step.cluster])
    bandwidth = bus if len(step.gpus) == 1 else min(bus, LINK)
    sent = BYTES[step.workload] / bandwidth * 2 * (count - 1) / count + HOP_S * (count - 1)
    exposed = max(0.0, sent - OVERLAP * compute)
    return TimedStep(placed=step, step_s=compute + exposed, sync_s=exposed)


def make(
    clusters: Iterable[str], placements: Iterable[tuple[int, ...]], batches: Iterable[float] = BATCHES
) -> list[TimedStep]:
    return [
        measure(place(workload, cluster, gpus, batch))
        for workload in SAMPLE_S
        for cluster in clusters
        for gpus in placements
        for batch in batches
    ]


def miss(model: ParallelModel, rows: list[TimedStep]) -> float:
    predicted = model.predict([row.placed for row in rows])
    return float(np.mean([abs(each.step_s / row.step_s - 1) for each, row in zip(predicted, rows, strict=True)]))


@pytest.fixture(scope="module")
def learned() -> ParallelModel:
    return ParallelModel().fit(make(("old", "mid", "new"), FEW))


def test_more_gpus_follow_the_ring_of_a_few(learned: ParallelModel) -> None:
    assert miss(learned, make(("old", "mid", "new"), MANY)) < 0.05


def share_bus(row: TimedStep) -> TimedStep:
    """The same step where all GPUs of a node share its bus."""
    return measure(row.placed, bus=BUS / max(row.placed.gpus))


def test_gpus_that_share_a_bus_slow_each_other() -> None:
    rows = [share_bus(row) for row in make(("old", "mid"), FEW)] + make(("new",), FEW)
    model = ParallelModel().fit(rows)
    assert miss(model, [share_bus(row) for row in make(("old", "mid"), ((8,), (8, 8)))]) < 0.1
    assert miss(model, make(("new",), ((8,), (8, 8)))) < 0.1


def test_the_gradients_of_a_workload_are_known_from_another_cluster() -> None:
    every = make(("old", "new"), (*FEW, *MANY))
    asked = [row for row in every if (row.placed.workload, row.placed.cluster) == ("large", "new")]
    rows = [row for row in every if row not in asked or row.placed.gpus == (1,)]
    assert miss(ParallelModel().fit(rows), asked) < 0.1


def test_faster_links_in_a_node_shorten_waiting_on_a_cluster_that_was_not_measured() -> None:
    def link(row: TimedStep, factor: float) -> TimedStep:
        device = replace(row.placed.device, link_bytes=factor * BUS) if row.placed.device else None
        return measure(replace(row.placed, device=device), bus=factor * BUS)

    model = ParallelModel().fit([link(row, 1.0) for row in make(("old", "mid", "new"), FEW)])
    assert miss(model, [link(row, 10.0) for row in make(("best",), ((2,), (4,)))]) < 0.1


def test_batches_between_measured_ones(learned: ParallelModel) -> None:
    assert miss(learned, make(("old", "new"), ((1,), (2, 2)), (6, 12, 24))) < 0.12


def test_another_cluster_is_predicted_by_its_figures() -> None:
    model = ParallelModel().fit(make(("old", "mid", "new"), (*FEW, *MANY)))
    assert miss(model, make(("best",), (*FEW, *MANY))) < 0.1


def test_one_outlying_cluster_does_not_decide_what_a_new_one_waits() -> None:
    slow = [measure(row.placed, bus=BUS / 30) for row in make(("old",), FEW)]
    model = ParallelModel().fit([*slow, *make(("mid", "new"), FEW), *make(("best",), ((1,),))])
    assert miss(model, make(("best",), MANY)) < 0.15


def test_a_device_without_figures_counts_as_the_mean() -> None:
    model = ParallelModel().fit(make(("old", "new"), FEW))
    step = replace(place("large", "best", (1,), 32), device=None, cluster="elsewhere")
    slow, fast = (measure(place("large", cluster, (1,), 32)).step_s for cluster in ("old", "new"))
    assert fast < model.predict([step])[0].step_s < slow


def test_the_parts_make_the_step(learned: ParallelModel) -> None:
    for predicted in learned.predict([row.placed for row in make(("old",), MANY)]):
        assert predicted.compute_s + predicted.exposed_s == pytest.approx(predicted.step_s)
        assert predicted.exposed_s >= 0


def test_one_gpu_does_not_wait(learned: ParallelModel) -> None:
    predicted = learned.predict([place("large", "old", (1,), 16)])[0]
    assert predicted.exposed_s < 1e-3 * predicted.step_s


def test_waiting_that_was_not_measured_is_found_from_steps() -> None:
    rows = [replace(row, sync_s=None) for row in make(("old", "mid", "new"), FEW)]
    assert miss(ParallelModel().fit(rows), make(("old", "mid", "new"), MANY)) < 0.1


def test_one_wild_row_does_no_harm() -> None:
    rows = make(("old", "mid", "new"), FEW)
    rows[7] = replace(rows[7], step_s=rows[7].step_s * 50)
    assert miss(ParallelModel().fit(rows), make(("old", "mid", "new"), MANY)) < 0.1


def test_bounds_hold_what_comes_and_widen_with_distance() -> None:
    noise = np.random.default_rng(1)
    rows = [replace(row, step_s=row.step_s * noise.lognormal(0, 0.05)) for row in make(("old", "mid", "new"), FEW)]
    model = ParallelModel().fit(rows)
    asked = make(("old", "mid", "new"), MANY)
    believed = model.predict([asked[0].placed])[0]
    model.calibrate(rows)
    predicted = model.predict([row.placed for row in asked])
    within = [each.low_s <= row.step_s <= each.high_s for each, row in zip(predicted, asked, strict=True)]
    assert np.mean(within) >= 0.85
    near, far = model.predict([place("large", "old", (8,), 16), place("large", "old", (8, 8, 8, 8), 16)])
    assert near.high_s / near.low_s < believed.high_s / believed.low_s  # it strays less than one would believe
    assert far.high_s / far.step_s > near.high_s / near.step_s


def test_the_same_rows_give_the_same_predictions(learned: ParallelModel) -> None:
    again = ParallelModel().fit(make(("old", "mid", "new"), FEW))
    asked = [row.placed for row in make(("mid",), MANY)]
    predicted, before = again.predict(asked), learned.predict(asked)
    assert [each.step_s for each in predicted] == pytest.approx([each.step_s for each in before], rel=1e-6)


def test_folds_hold_out_gpus_and_clusters() -> None:
    rows = make(("old", "mid"), FEW)
    for train, test in split_by_gpus(rows):
        assert max(sum(row.placed.gpus) for row in train) < min(sum(row.placed.gpus) for row in test)
    assert [{row.placed.cluster for row in test} for _, test in split_by_cluster(rows)] == [{"mid"}, {"old"}]


def test_no_steps_give_no_predictions(learned: ParallelModel) -> None:
    assert learned.predict([]) == []


def test_an_unknown_workload_is_refused(learned: ParallelModel) -> None:
    with pytest.raises(NotFoundError, match=r"'other'.*Known: large, small.*Measure"):
        learned.predict([replace(place("large", "old", (1,), 4), workload="other")])


def test_rows_that_cannot_be_fitted_to_are_refused() -> None:
    row = measure(place("large", "old", (2,), 4))
    with pytest.raises(ImportDataError, match="no steps"):
        ParallelModel().fit([])
    with pytest.raises(ImportDataError, match=r"a step of 0.0 s.*Leave such rows out"):
        ParallelModel().fit([replace(row, step_s=0.0)])
    with pytest.raises(ImportDataError, match="the compute time of 'large' is unknown"):
        ParallelModel().fit([replace(row, sync_s=None)])
