"""What copies of a model exchange: buckets as PyTorch fills them, units of FSDP, and states that ZeRO divides."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.distributed.small_networks import BATCH, LAYERS, TOKENS, WORDS, build_llama, read_network
from torch import distributed, nn
from torch._C._distributed_c10d import GradBucket, HashStore
from torch.nn.parallel import DistributedDataParallel

from foretell.core.devices import get_device
from foretell.core.gradients import find_buckets
from foretell.core.layouts import parse_layout
from foretell.core.topology import Group, LayoutGroups, Topology
from foretell.core.workload import Workload
from foretell.distributed.collective_times import Collective
from foretell.distributed.data_exchanges import DataExchanges
from foretell.distributed.shared_steps import share_step
from foretell.workloads.capture import capture
from foretell.workloads.step_options import StepOptions, parse_input

WIDE = 1536


class Tower(nn.Module):
    """More than one full bucket; parameters are made in another order than they are used in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(WIDE, 16)
        self.layers = nn.ModuleList(nn.Linear(WIDE, WIDE) for _ in range(5))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            given = torch.relu(layer(given))
        scores: torch.Tensor = self.last(given)
        return scores


class Recorder:
    """Takes a second for each byte, and remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Collective, float, Group]] = []

    def __call__(self, operation: Collective, bytes_: float, group: Group) -> float:
        self.asked.append((operation, bytes_, group))
        return bytes_


def exchange(workload: Workload, layout: str) -> tuple[DataExchanges, Recorder]:
    shared = parse_layout(layout)
    recorder = Recorder()
    groups = LayoutGroups.place(shared, Topology(device=get_device("H100")))
    return DataExchanges(share_step(workload, shared), groups, recorder), recorder


def find_all(workload: Workload) -> np.ndarray:
    return np.arange(len(workload.operators))


@pytest.fixture
def alone() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # the framework's own
@pytest.mark.usefixtures("alone")
def test_buckets_of_ddp_are_those_of_pytorch() -> None:
    sent: list[int] = []

    def send(_: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        sent.append(4 * bucket.buffer().numel())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    worker = DistributedDataParallel(Tower())
    worker.register_comm_hook(None, send)
    for _ in range(2):  # buckets are filled anew after the first
        sent.clear()
        worker(torch.rand(2, WIDE)).sum().backward()
    workload = capture(Tower(), [parse_input(f"2,{WIDE}")], options=StepOptions(loss="sum"))
    exchanges, _ = exchange(workload, "dp=4,ddp")
    buckets = exchanges.list_buckets(find_all(workload))
    assert [bucket.reduce_s for bucket in buckets] == sent
    assert len(sent) > 2
    assert [bucket.ready for bucket in buckets] == sorted(bucket.ready for bucket in buckets)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral"])
def test_layouts_and_consumption_have_the_same_buckets(name: str) -> None:
    workload = read_network(name)
    exchanges, recorder = exchange(workload, "dp=4,ddp")
    buckets = exchanges.list_buckets(find_all(workload))
    expected = find_buckets(workload)
    assert [(each.ready, each.reduce_s) for each in buckets] == [(each.ready, each.bytes_) for each in expected]
    assert {operation for operation, *_ in recorder.asked} == {Collective.ALL_REDUCE}


@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2"])
def test_each_gradient_is_reduced_once(kind: str) -> None:
    workload = read_network("llama")
    exchanges, recorder = exchange(workload, f"dp=4,{kind}")
    buckets = exchanges.list_buckets(find_all(workload))
    assert sum(bucket.reduce_s for bucket in buckets) == pytest.approx(sum(each.bytes_ for each in workload.gradients))
    expected = Collective.ALL_REDUCE if kind == "ddp" else Collective.REDUCE_SCATTER
    assert {operation for operation, *_ in recorder.asked} == {expected}


def test_full_sharding_gathers_layers_one_by_one() -> None:
    """The bytes of each unit are those of its module's parameters."""
    workload = read_network("llama", precision="bf16")
    exchanges, _ = exchange(workload, "dp=4,fsdp")
    parts = np.zeros(len(exchanges.step.units.names), dtype=int)
    model = build_llama()
    parameters = {name: each.numel() for name, each in model.named_parameters()}
    layer = sum(size for name, size in parameters.items() if name.startswith("model.layers.0."))
    ends = [parameters["model.embed_tokens.weight"], parameters["model.norm.weight"] + parameters["lm_head.weight"]]
    expected = [ends[0], *[layer] * LAYERS, ends[1]]
    forward = exchanges.list_gatherings(0, parts, forward=True)
    assert [unit.gather_s for unit in forward] == [2.0 * size for size in expected]  # in half precision
    assert [unit.reduce_s for unit in forward] == [0.0] * len(expected)
    backward = exchanges.list_gatherings(0, parts, forward=False)
    assert [unit.reduce_s for unit in backward] == [4.0 * size for size in expected]  # in single precision
    assert exchanges.list_buckets(find_all(workload)) == []


@pytest.mark.parametrize(
    ("words", "units", "gathered", "reduced"),
    [("wrap=2", LAYERS // 2, 1, 4), ("wrap=0", 1, 1, 4), ("keep", LAYERS, 0, 4), ("half-reduce", LAYERS, 1, 2)],
)
def test_arguments_of_fsdp(words: str, units: int, gathered: int, reduced: int) -> None:
    workload = read_network("llama", precision="bf16")
    exchanges, _ = exchange(workload, f"dp=4,fsdp,{words}")
    parts = np.zeros(len(exchanges.step.units.names), dtype=int)
    found = exchanges.list_gatherings(0, parts, forward=False)
    whole = sum(each.bytes_ for each in workload.gradients) / 4
    assert len(found) == units + 2  # what is before and after the layers
    assert sum(unit.gather_s for unit in found) == pytest.approx(2 * whole * gathered)
    assert sum(unit.reduce_s for unit in found) == pytest.approx(reduced * whole)


def test_hybrid_sharding_reduces_shards_among_replicas() -> None:
    exchanges, recorder = exchange(read_network("llama"), "dp=8,fsdp,hsdp=4")
    parts = np.zeros(len(exchanges.step.units.names), dtype=int)
    found = exchanges.list_gatherings(0, parts, forward=False)
    whole = sum(4.0 * each.dense for each in exchanges.step.states)
    assert sum(unit.reduce_s for unit in found) == pytest.approx(whole + whole / 4)
    sizes = {(operation, group.gpus) for operation, _, group in recorder.asked}
    assert sizes == {(Collective.ALL_GATHER, 4), (Collective.REDUCE_SCATTER, 4), (Collective.ALL_REDUCE, 2)}


@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
def test_optimizers_update_their_share(kind: str) -> None:
    exchanges, _ = exchange(read_network("llama"), f"dp=8,{kind}")
    whole = sum(each.dense for each in exchanges.step.states)
    assert exchanges.find_share(exchanges.step.states) == pytest.approx(whole if kind == "ddp" else whole / 8)


@pytest.mark.parametrize("kind", ["ddp", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("words", ["", ",no-overlap"])
def test_updated_weights_are_gathered_once(kind: str, words: str) -> None:
    """Of ZeRO 1 and 2: after the update, or while the next forward phase runs."""
    exchanges, _ = exchange(read_network("llama"), f"dp=8,{kind}{words}")
    after = exchanges.gather_after_update(exchanges.step.states)
    behind = exchanges.gathers(0, forward=True)
    assert (after > 0) == (kind in ("zero1", "zero2") and bool(words))
    assert behind == (kind == "zero3" or (kind in ("zero1", "zero2") and not words))
    assert exchanges.gathers(1, forward=True) == exchanges.gathers(0, forward=False) == (kind == "zero3")


def test_experts_are_reduced_among_the_gpus_that_have_them() -> None:
    exchanges, recorder = exchange(read_network("mixtral"), "dp=8,ep=4,ddp")
    exchanges.list_buckets(find_all(exchanges.step.workload))
    assert {group.gpus for _, _, group in recorder.asked} == {8, 2}
    experts = sum(bytes_ for _, bytes_, group in recorder.asked if group.gpus == 2)
    assert experts == pytest.approx(sum(each.experts for each in exchanges.step.gradients))


def test_one_copy_exchanges_nothing() -> None:
    exchanges, recorder = exchange(read_network("llama"), "tp=4")
    assert exchanges.list_buckets(find_all(exchanges.step.workload)) == []
    assert not exchanges.gathers(0, forward=True)
    assert recorder.asked == []


@pytest.mark.parametrize("kind", ["ddp", "zero1", "fsdp"])
def test_experts_that_tensor_parallelism_divides_have_the_copies_of_other_layers(kind: str) -> None:
    """Each GPU of a tensor-parallel group has its own part of every expert, which only copies of the model share."""
    exchanges, recorder = exchange(read_network("mixtral"), f"tp=2,dp=4,{kind}")
    parts = np.zeros(len(exchanges.step.units.names), dtype=int)
    exchanges.list_buckets(find_all(exchanges.step.workload))
    exchanges.list_gatherings(0, parts, forward=False)
    assert {group.gpus for _, _, group in recorder.asked} == {4}
    held = sum(each.dense + each.experts for each in exchanges.step.states)
    assert exchanges.find_share(exchanges.step.states) == pytest.approx(held if kind == "ddp" else held / 4)


def test_hybrid_sharding_reduces_experts_among_replicas_as_well() -> None:
    exchanges, recorder = exchange(read_network("mixtral"), "dp=8,fsdp,hsdp=4")
    parts = np.zeros(len(exchanges.step.units.names), dtype=int)
    found = exchanges.list_gatherings(0, parts, forward=False)
    whole = sum(each.bytes_ for each in exchanges.step.workload.gradients)
    assert any(each.experts for each in exchanges.step.states)
    assert len({group for _, _, group in recorder.asked}) == 2  # a shard's GPUs, and its replicas
    assert sum(unit.reduce_s for unit in found) == pytest.approx(whole + whole / 4)


@pytest.mark.parametrize("words", ["dp=4", "tp=2,dp=4", "tp=2,pp=2,dp=2"])
def test_frozen_weights_are_gathered_and_not_reduced(words: str) -> None:
    """As of a model that is fine-tuned in few of its weights."""
    with torch.device("meta"):
        model = build_llama()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name or name.endswith("layers.1.input_layernorm.weight"))
    options = StepOptions(optimizer="adamw", precision="bf16")
    tuned = capture(model, [parse_input(f"{BATCH},{TOKENS}:int64:{WORDS}")], options=options)
    (few, _), (all_, _) = (
        exchange(workload, f"{words},zero3") for workload in (tuned, read_network("llama", precision="bf16"))
    )
    parts = np.zeros(len(few.step.units.names), dtype=int)
    for forward in (True, False):
        gathered = [each.gather_s for each in few.list_gatherings(0, parts, forward=forward)]
        assert gathered == pytest.approx([each.gather_s for each in all_.list_gatherings(0, parts, forward=forward)])
    reduced = sum(each.reduce_s for each in few.list_gatherings(0, parts, forward=False))
    assert reduced == pytest.approx(4 * sum(each.dense for each in few.step.states))
    assert 0 < reduced < 0.1 * sum(each.reduce_s for each in all_.list_gatherings(0, parts, forward=False))
