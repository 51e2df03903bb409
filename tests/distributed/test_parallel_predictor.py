"""Laws of steps that several GPUs share."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw
from tests.distributed.small_networks import BATCH, LAYERS, read_network

from foretell.core.devices import get_device
from foretell.core.errors import SpecError
from foretell.core.layouts import DATA_PARALLEL, Layout, parse_layout
from foretell.core.topology import Group, Topology
from foretell.distributed.collective_times import Collective, CollectiveTimes
from foretell.distributed.parallel_predictor import ParallelPredictor
from foretell.distributed.parallel_results import ParallelStep
from foretell.steps.step_predictor import StepPredictor, build_figure_predictor

H100 = get_device("H100")
NODE = Topology(device=H100, gpus_per_node=8, link_bytes=450e9, network_bytes=50e9)
LAYOUTS = (
    "dp=8",
    "dp=8,zero1",
    "dp=8,zero3",
    "dp=8,fsdp",
    "dp=8,fsdp,hsdp=4",
    "tp=4,dp=2",
    "tp=8,sp",
    "pp=4,dp=2,micro=8",
    "pp=2,dp=4,zero1,micro=4,interleave=2",
    "cp=4,dp=2,fsdp",
    "tp=2,sp,pp=2,cp=2,dp=2,micro=4",
)
MODELS = [("llama", each) for each in LAYOUTS] + [("mixtral", "dp=8,ep=8"), ("mixtral", "tp=2,ep=4,dp=4,zero1")]


@pytest.fixture(scope="module")
def one_gpu() -> StepPredictor:
    return build_figure_predictor(H100)


class FreeCollectives(CollectiveTimes):
    """Exchanges that take no time."""

    def predict(self, operation: Collective, bytes_: float, group: Group, topology: Topology) -> float:
        return 0.0


def predict(
    one_gpu: StepPredictor,
    layout: str | Layout,
    *,
    name: str = "llama",
    topology: Topology = NODE,
    accumulation: int = 1,
    collectives: CollectiveTimes | None = None,
) -> ParallelStep:
    shared = parse_layout(layout) if isinstance(layout, str) else layout
    predictor = ParallelPredictor(one_gpu, topology, collectives=collectives)
    return predictor.predict(read_network(name, precision="bf16"), [shared], accumulation=accumulation)[0]


def is_sorted(values: Sequence[float]) -> bool:
    return all(one <= other * (1 + 1e-9) for one, other in pairwise(values))


@pytest.mark.parametrize(("name", "layout"), MODELS)
def test_parts_are_the_step_and_intervals_contain_it(one_gpu: StepPredictor, name: str, layout: str) -> None:
    found = predict(one_gpu, layout, name=name, accumulation=2)
    assert sum(found.parts.values()) == pytest.approx(found.step.value)
    assert found.step.low < found.step.value < found.step.high
    assert all(seconds >= 0 for seconds in found.parts.values())
    assert all(bytes_ >= 0 for bytes_ in found.sent_bytes.values())
    assert found.parts["compute"] > 0
    assert found.mfu is not None
    assert 0 < found.mfu < 1
    assert found.examples == BATCH * found.micro_batches * found.layout.copies


@pytest.mark.parametrize(("name", "layout"), MODELS)
@pytest.mark.parametrize("field", ["link_bytes", "network_bytes"])
def test_more_bandwidth_is_never_slower(one_gpu: StepPredictor, name: str, layout: str, field: str) -> None:
    """Between rates that the device itself does not have, whose exchanges were measured."""
    slow = replace(NODE, gpus_per_node=4)
    rates = [replace(slow, **{field: getattr(NODE, field) * factor}) for factor in (0.1, 0.4, 0.8, 1.6)]
    times = [predict(one_gpu, layout, name=name, topology=each).step.value for each in rates]
    assert is_sorted(times[::-1])


@pytest.mark.parametrize(("name", "layout"), MODELS)
def test_one_node_is_never_slower_than_two(one_gpu: StepPredictor, name: str, layout: str) -> None:
    gpus = parse_layout(layout).gpus
    apart, together = (
        predict(one_gpu, layout, name=name, topology=replace(NODE, gpus_per_node=size)).step.value
        for size in (gpus // 2, gpus)
    )
    assert together <= apart * (1 + 1e-9)


def test_one_gpu_is_the_step_of_one_gpu(one_gpu: StepPredictor) -> None:
    alone = one_gpu.predict(read_network("llama", precision="bf16"))
    found = predict(one_gpu, Layout())
    assert found.step.value == pytest.approx(alone.iteration.value)
    assert found.step.low == pytest.approx(alone.iteration.low)
    assert found.step.high == pytest.approx(alone.iteration.high)
    assert found.parts["data"] == found.parts["tensor"] == found.parts["bubble"] == 0
    assert found.sent_bytes == {"tensor": 0.0, "data": 0.0, "pipeline": 0.0}


def test_the_share_of_the_peak_is_that_of_one_gpu(one_gpu: StepPredictor) -> None:
    """Also where convolutions in single precision run in TF32, whose peak is higher."""
    for name, precision in (("llama", "bf16"), ("resnet", "fp32")):
        workload = read_network(name, precision=precision)
        step = ParallelPredictor(one_gpu, NODE).predict(workload, [Layout()])[0]
        assert step.mfu == pytest.approx(one_gpu.predict(workload).mfu)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_copies_without_exchanges_scale_with_the_gpus(one_gpu: StepPredictor, kind: str) -> None:
    steps = [predict(one_gpu, f"dp={gpus},{kind}", collectives=FreeCollectives()) for gpus in (2, 4, 64)]
    waits = [step.parts["data"] / (step.parts["compute"] + step.parts["host"]) for step in steps]
    assert all(0 < share < 0.07 for share in waits)  # for the slowest of them
    if kind == "ddp":
        assert [step.examples_per_s / step.gpus for step in steps] == pytest.approx([steps[0].examples_per_s / 2] * 3)
    else:  # each updates and casts its share
        assert is_sorted([step.step.value for step in reversed(steps)])


def test_batches_of_a_step_each_take_as_long(one_gpu: StepPredictor) -> None:
    times = [predict(one_gpu, Layout(), accumulation=count).step.value for count in (2, 3, 4)]
    assert times[1] - times[0] == pytest.approx(times[2] - times[1])


@pytest.mark.parametrize("stages", [2, 4])
def test_the_bubble_shrinks_with_the_batches(one_gpu: StepPredictor, stages: int) -> None:
    steps = [predict(one_gpu, f"pp={stages},micro={count}") for count in (stages, 4 * stages, 16 * stages)]
    shares = [step.parts["bubble"] / step.step.value for step in steps]
    assert is_sorted(shares[::-1])
    assert shares[0] > 2 * shares[2]
    assert (
        predict(one_gpu, "pp=2,micro=8,interleave=2", collectives=FreeCollectives()).parts["bubble"]
        < (predict(one_gpu, "pp=2,micro=8", collectives=FreeCollectives()).parts["bubble"])
    )


@pytest.mark.parametrize("kind", DATA_PARALLEL)
def test_overlap_is_never_slower(one_gpu: StepPredictor, kind: str) -> None:
    topology = replace(NODE, gpus_per_node=1, network_bytes=5e9)
    apart, behind = (
        predict(one_gpu, f"dp=8,{kind}{words}", topology=topology).step.value for words in (",no-overlap", "")
    )
    assert behind < apart


@pytest.mark.parametrize("link_bytes", [1e8, 4e9, 450e9, 1e15])
@pytest.mark.parametrize("tensor", [2, 8])
def test_overlap_inside_of_layers_hides_no_more_than_the_exchanges(
    one_gpu: StepPredictor, link_bytes: float, tensor: int
) -> None:
    topology = replace(NODE, link_bytes=link_bytes)
    apart, behind = (predict(one_gpu, f"tp={tensor},sp{word}", topology=topology) for word in ("", ",tp-overlap"))
    hidden = apart.parts["tensor"] - behind.parts["tensor"]
    assert apart.step.value - behind.step.value == pytest.approx(hidden)
    assert 0 < hidden <= min(apart.parts["tensor"], apart.parts["compute"])


def test_weights_that_are_gathered_after_the_update_are_exposed(one_gpu: StepPredictor) -> None:
    """On a slow network, where gradients cannot be hidden either."""
    topology = replace(NODE, gpus_per_node=1, network_bytes=1e7)
    found = predict(one_gpu, "dp=8,zero1,no-overlap", topology=topology)
    gradients = sum(each.bytes_ for each in read_network("llama", precision="bf16").gradients)
    reduced, gathered = gradients, gradients / 2  # of weights, in half precision
    assert found.parts["data"] >= 7 / 8 * (reduced + gathered) / 1e7


def test_stages_of_a_convolutional_network_send_images(one_gpu: StepPredictor) -> None:
    rates = (1e6, 2e6)
    steps = [
        predict(one_gpu, "pp=2,micro=4", name="resnet", topology=replace(NODE, gpus_per_node=1, network_bytes=rate))
        for rate in rates
    ]
    sent = [step.sent_bytes["pipeline"] for step in steps]
    assert sent[0] == sent[1] > 0
    assert steps[0].parts["bubble"] > 1.5 * steps[1].parts["bubble"]


def test_gradients_of_batches_before_the_last_are_not_exchanged(one_gpu: StepPredictor) -> None:
    topology = replace(NODE, gpus_per_node=1, network_bytes=1e9)
    exposed = [predict(one_gpu, "dp=8", topology=topology, accumulation=count).parts["data"] for count in (1, 4)]
    assert exposed[1] == pytest.approx(exposed[0], rel=0.1)  # less what it takes to add gradients, and copies wait
    sharded = [predict(one_gpu, "dp=8,fsdp", topology=topology, accumulation=count).parts["data"] for count in (1, 4)]
    assert sharded[1] > 3 * sharded[0]


def test_exposed_exchanges_are_at_least_what_computing_cannot_hide(one_gpu: StepPredictor) -> None:
    """On a very slow network, the step is the exchange of all gradients."""
    slow = replace(NODE, gpus_per_node=1, network_bytes=1e6)
    found = predict(one_gpu, "dp=8", topology=slow)
    gradients = sum(each.bytes_ for each in read_network("llama", precision="bf16").gradients)
    assert found.sent_bytes["data"] == pytest.approx(gradients)
    assert found.step.value >= 2 * 7 / 8 * gradients / 1e6 * 0.99
    assert found.main_limit == "data"


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_a_gpu_computes_less_the_more_share_its_layers(one_gpu: StepPredictor, tensor: int) -> None:
    few, many = (predict(one_gpu, f"tp={each}", collectives=FreeCollectives()) for each in (tensor // 2, tensor))
    assert many.parts["compute"] < few.parts["compute"]
    assert many.parts["tensor"] == 0


@settings(deadline=None, max_examples=25)
@given(tensor=draw.sampled_from([1, 2, 4]), stages=draw.sampled_from([1, 2, 4]), copies=draw.sampled_from([1, 2, 4]))
def test_longer_messages_never_make_a_step_shorter(tensor: int, stages: int, copies: int) -> None:
    predictor = build_figure_predictor(H100)
    words = [f"tp={tensor},pp={stages},dp={copies}", *(["ddp"] if copies > 1 else [])]
    free = predict(predictor, ",".join(words), collectives=FreeCollectives()).step.value
    assert predict(predictor, ",".join(words)).step.value >= free * (1 - 1e-9)


def test_a_layout_that_does_not_divide_the_model_is_refused(one_gpu: StepPredictor) -> None:
    with pytest.raises(SpecError, match=f"at most {LAYERS}, the repeated layers of llama"):
        predict(one_gpu, "pp=8")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pp=2,micro=4", "pp=2,dp=8,micro=4"),  # stages are neighbours, or in other nodes
        ("pp=2,dp=2,ddp,micro=4", "pp=2,dp=2,fsdp,micro=4"),  # which cast all weights, or a part of them
        ("pp=2,dp=2,fsdp,micro=4", "pp=2,dp=4,fsdp,micro=4"),
        ("tp=2,pp=2", "tp=2,sp,pp=2"),
    ],
)
def test_a_layout_is_predicted_the_same_after_others(one_gpu: StepPredictor, first: str, second: str) -> None:
    slow = replace(NODE, gpus_per_node=4, network_bytes=1e8)
    workload = read_network("llama", precision="bf16")
    both = ParallelPredictor(one_gpu, slow).predict(workload, [parse_layout(first), parse_layout(second)])
    alone = [predict(one_gpu, each, topology=slow).parts for each in (first, second)]
    assert [step.parts for step in both] == [pytest.approx(parts) for parts in alone]


@pytest.mark.parametrize("layout", ["dp=8", "tp=8,sp", "pp=2,dp=4,micro=4"])
def test_intervals_of_a_higher_level_are_wider(one_gpu: StepPredictor, layout: str) -> None:
    predictor = ParallelPredictor(one_gpu, NODE)
    workload = read_network("llama", precision="bf16")
    levels = (0.5, 0.9, 0.99)
    steps = [predictor.predict(workload, [parse_layout(layout)], level=level)[0].step for level in levels]
    assert [step.level for step in steps] == list(levels)
    assert steps[0].low > steps[1].low > steps[2].low
    assert steps[0].high < steps[1].high < steps[2].high


def test_an_interleaved_pipeline_refuses_batches_that_its_stages_do_not_divide(one_gpu: StepPredictor) -> None:
    with pytest.raises(SpecError, match=r"6 micro-batches on 4 stages.*a multiple of 4"):
        predict(one_gpu, "pp=4,micro=4,interleave=2", accumulation=6)
