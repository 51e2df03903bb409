"""Times of collectives: laws that hold on every system, the shipped model, and a fit to a known law."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.distributed.collective_fits import fit_law
from benchmarks.distributed.collective_rows import CollectiveRow

from foretell.core.devices import get_device
from foretell.core.topology import Group, Topology
from foretell.distributed.collective_curves import Curve, Evidence, MeasuredCurves
from foretell.distributed.collective_laws import NAMES, STARTS, CollectiveLaw
from foretell.distributed.collective_times import (
    Collective,
    CollectiveModel,
    CollectiveTimes,
    load_shipped,
)

BOARDS = ["H100", "A100-80", "V100-16", "MI300X", "GB200", "T4", "Gaudi2"]
MIB = float(1 << 20)


@pytest.fixture(scope="module")
def times() -> CollectiveTimes:
    return CollectiveTimes()


def build_topology(name: str, **figures: float) -> Topology:
    return Topology(device=get_device(name), **figures)  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", Collective)
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("gpus", [2, 6, 16, 128])
def test_more_bytes_never_take_less_time(times: CollectiveTimes, board: str, operation: Collective, gpus: int) -> None:
    topology = build_topology(board)
    group = topology.place(gpus)
    found = [times.predict(operation, bytes_, group, topology) for bytes_ in np.geomspace(1, 2.0**42, 300)]
    assert found[0] > 1e-6
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("board", BOARDS)
def test_large_messages_need_no_less_than_the_links(times: CollectiveTimes, board: str) -> None:
    topology = build_topology(board)
    for operation, share in ((Collective.ALL_GATHER, 7 / 8), (Collective.ALL_TO_ALL, 7 / 8)):
        least = share * 2.0**36 / topology.link_bytes_per_s
        assert least <= times.predict(operation, 2.0**36, Group(gpus=8), topology) <= 2.5 * least


@pytest.mark.parametrize("operation", Collective)
def test_beyond_the_grid_time_grows_with_the_bytes(times: CollectiveTimes, operation: Collective) -> None:
    topology = build_topology("B200")
    once, twice = (times.predict(operation, size, Group(gpus=8), topology) for size in (2.0**42, 2.0**43))
    assert twice == pytest.approx(2 * once)


@pytest.mark.parametrize("board", ["A100-80", "V100-16", "MI300X", "T4"])
def test_an_all_reduce_is_about_a_scatter_and_a_gather(times: CollectiveTimes, board: str) -> None:
    topology, group = build_topology(board), Group(gpus=8)
    parts = sum(
        times.predict(operation, 2.0**30, group, topology)
        for operation in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
    )
    assert times.predict(Collective.ALL_REDUCE, 2.0**30, group, topology) == pytest.approx(parts, rel=0.25)


@pytest.mark.parametrize("operation", Collective)
@pytest.mark.parametrize("board", BOARDS)
def test_two_nodes_are_never_faster_than_one(times: CollectiveTimes, board: str, operation: Collective) -> None:
    topology = build_topology(board)
    gpus = 2 if operation is Collective.SEND else 8
    for size in (1e3, 1e6, 1e9):
        one, two = (times.predict(operation, size, Group(gpus=gpus, nodes=nodes), topology) for nodes in (1, 2))
        assert one <= two


def test_a_slower_network_takes_longer_than_the_links(times: CollectiveTimes) -> None:
    slow, fast = (build_topology("H100", network_bytes=rate) for rate in (1e9, 50e9))
    group = Group(gpus=32, nodes=4)
    found, faster = (times.predict(Collective.ALL_REDUCE, 1e9, group, each) for each in (slow, fast))
    assert found > 5 * faster
    least = 2 * 31 / 32 * 1e9 / 8 / 1e9  # what leaves a node, shared by its eight GPUs
    assert least <= found <= 1.5 * least


def test_two_nodes_need_less_than_a_ring(times: CollectiveTimes) -> None:
    """In a tree of two, each node sends the message once: https://github.com/NVIDIA/nccl-tests/issues/196."""
    topology = build_topology("H100", network_bytes=1e9)
    found = times.predict(Collective.ALL_REDUCE, 1e9, Group(gpus=16, nodes=2), topology)
    assert 1 / 8 <= found <= 1.5 / 8


@pytest.mark.parametrize("operation", Collective)
def test_one_gpu_or_no_bytes_take_no_time(times: CollectiveTimes, operation: Collective) -> None:
    topology = build_topology("H100")
    assert times.predict(operation, 1e9, Group(gpus=1), topology) == 0.0
    assert times.predict(operation, 0.0, Group(gpus=8), topology) == 0.0


def test_unknown_links_are_predicted(times: CollectiveTimes) -> None:
    unknown = Topology(device=replace(get_device("H100"), name="mine", architecture="", link_bytes=0.0))
    assert 0.1 < times.predict(Collective.ALL_REDUCE, 1e9, Group(gpus=8), unknown) < 0.3
    assert times.find_evidence(Collective.ALL_REDUCE, Group(gpus=8), unknown) is Evidence.FIGURES


def test_a_mesh_uses_only_its_links_to_the_group(times: CollectiveTimes) -> None:
    topology = build_topology("MI300X")
    assert topology.find_link_rate(2) == pytest.approx(448e9 / 7)
    assert topology.find_link_rate(8) == 448e9
    assert build_topology("H100").find_link_rate(2) == 450e9
    two, eight = (times.predict(Collective.ALL_GATHER, 1e9, Group(gpus=gpus), topology) for gpus in (2, 8))
    assert two > 2 * eight


def test_switches_join_72_gpus() -> None:
    topology = build_topology("GB200")
    assert topology.place(72).nodes == 1
    assert topology.place(144).nodes == 2
    assert build_topology("GB200", domain=4, gpus_per_node=4).place(8).nodes == 2


def test_the_shipped_model_has_measured_similar_and_other_devices(times: CollectiveTimes) -> None:
    group = Group(gpus=8)
    for board, evidence in (("H100", "measured"), ("A100-40", "similar"), ("H800", "figures")):
        assert times.find_evidence(Collective.ALL_REDUCE, group, build_topology(board)) == evidence
    across = Group(gpus=16, nodes=2)
    assert times.find_evidence(Collective.ALL_REDUCE, across, build_topology("H100")) is Evidence.NETWORK


def test_spreads_grow_as_evidence_is_weaker() -> None:
    found = load_shipped().spreads
    assert 0 < found["measured"] < found["similar"] < found["figures"] < found["network"] < 1


def test_the_shipped_model_is_near_a_measurement(times: CollectiveTimes) -> None:
    """XLA's table: an all-gather of 512 MiB on four H100 takes 1.27 ms."""
    found = times.predict(Collective.ALL_GATHER, 512 * MIB, Group(gpus=4), build_topology("H100"))
    assert found == pytest.approx(1.27e-3, rel=0.05)


def test_measured_curves_correct_the_law_between_their_gpus() -> None:
    sizes = np.array([20.0, 30.0])
    curves = [
        Curve(device="H100", operation="all_gather", gpus=gpus, sizes=sizes, shifts=np.full(2, shift))
        for gpus, shift in ((2, 0.0), (8, 0.4))
    ]
    found = MeasuredCurves(curves)
    for gpus, shift in ((2, 0.0), (4, 0.2), (8, 0.4), (16, 0.4)):
        shifts, evidence = found.find_shifts(get_device("H100"), "all_gather", gpus, np.array([10.0, 25.0, 35.0]))
        assert shifts == pytest.approx(np.full(3, shift))
        assert evidence is Evidence.MEASURED
    assert found.find_shifts(get_device("H100"), "send", 2, sizes)[1] is Evidence.FIGURES


def test_a_model_survives_its_state() -> None:
    curve = Curve(device="H100", operation="send", gpus=2, sizes=np.array([20.0, 24.0]), shifts=np.array([0.1, 0.2]))
    model = CollectiveModel(CollectiveLaw(STARTS + 0.01), MeasuredCurves([curve]), {"figures": 0.3})
    record, arrays = model.to_state()
    again = CollectiveModel.from_state(record, arrays)
    group, topology = Group(gpus=2), build_topology("H100")
    assert CollectiveTimes(again).predict(Collective.SEND, 1e7, group, topology) == pytest.approx(
        CollectiveTimes(model).predict(Collective.SEND, 1e7, group, topology)
    )
    assert again.spreads["figures"] == 0.3
    with pytest.raises(ValueError, match="not a curve"):
        CollectiveModel.from_state(record, {**arrays, "shifts": np.full(2, np.nan)})
    with pytest.raises(ValueError, match="not finite"):
        CollectiveModel.from_state({**record, "law": {**record["law"], NAMES[0]: float("nan")}}, arrays)


def test_a_fit_finds_a_known_law_again() -> None:
    random = np.random.default_rng(7)
    law = CollectiveLaw(STARTS + random.uniform(-0.3, 0.1, len(STARTS)))
    model = CollectiveTimes(CollectiveModel(law))
    rows = [
        CollectiveRow(
            source="aiconfigurator",
            device=board,
            operation=operation,
            bytes_=2.0**size,
            group=Group(gpus=gpus),
            seconds=model.predict(operation, 2.0**size, Group(gpus=gpus), build_topology(board)),
            topology=build_topology(board),
        )
        for board in ("A100-80", "H100", "T4")
        for operation in Collective
        for gpus in ((2,) if operation is Collective.SEND else (2, 4, 8))
        for size in range(10, 32)
    ]
    fitted = CollectiveTimes(CollectiveModel(fit_law(rows).law))
    topology = build_topology("B200")  # of which there is no row
    for operation in Collective:
        gpus = 2 if operation is Collective.SEND else 8
        for size in (1e4, 1e7, 1e9):
            expected = model.predict(operation, size, Group(gpus=gpus), topology)
            assert fitted.predict(operation, size, Group(gpus=gpus), topology) == pytest.approx(expected, rel=0.06)
