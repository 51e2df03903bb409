"""The search of layouts, against trying everything; and what it says where nothing can be tried."""

import pytest
import torch
from tests.distributed.small_networks import LAYERS, TOKENS, WORDS, build_llama, read_network
from torch import nn
from torch.nn import functional

from foretell.core.devices import Device, get_device
from foretell.core.errors import SpecError
from foretell.core.layouts import Layout, parse_layout
from foretell.core.topology import Topology
from foretell.distributed.layout_candidates import LayoutCandidates
from foretell.distributed.layout_search import LayoutChoice, LayoutSearch, RecordedStep
from foretell.steps.step_predictor import StepPredictor, build_figure_predictor
from foretell.workloads.capture import capture
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import StepOptions, parse_input

BATCH = 4
OPTIONS = StepOptions(optimizer="adamw", precision="bf16")
H100 = get_device("H100")


def shrink(memory_bytes: int) -> Topology:
    """Nodes of four GPUs with so much memory for programs."""
    fields = {name: getattr(H100, name) for name in H100.__dataclass_fields__}
    device = Device(**{**fields, "memory_bytes": 2 * memory_bytes, "usable_memory": memory_bytes})
    return Topology(device=device, gpus_per_node=4, network_bytes=5e9)


PLENTY = shrink(80 * 10**9)


@pytest.fixture(scope="module")
def recorded() -> RecordedStep:
    inputs = [parse_input(f"{BATCH},{TOKENS}:int64:{WORDS}")]
    with torch.device("meta"):
        return RecordedStep(
            workload=capture(build_llama(), inputs, options=OPTIONS, name="llama"),
            memory=capture_memory(build_llama(), inputs, options=OPTIONS),
        )


@pytest.fixture(scope="module")
def predictors() -> dict[Device, StepPredictor]:
    return {}


@pytest.fixture
def search(recorded: RecordedStep, predictors: dict[Device, StepPredictor]) -> LayoutSearch:
    def find(device: Device) -> StepPredictor:
        if device not in predictors:
            predictors[device] = build_figure_predictor(device)
        return predictors[device]

    return LayoutSearch(recorded, find_predictor=find)


def find_rate(choice: LayoutChoice) -> float:
    return choice.step.examples_per_s


def try_everything(search: LayoutSearch, topology: Topology, *, gpus: int, batch: int) -> list[LayoutChoice]:
    """Every layout with every number of examples at once that a search may have."""
    found = []
    for layout in LayoutCandidates(search.step.workload).list_all(topology, gpus):
        own = batch // layout.copies
        for size in (each for each in range(1, own + 1) if own % each == 0 and each & (each - 1) == 0):
            stages = layout.pipeline_parallel
            if own // size < stages or (layout.interleave > 1 and own // size % stages):
                continue
            found.append(search.predict(topology, layout, batch=batch, micro_batch=size))
    return found


@pytest.mark.parametrize(("gpus", "batch"), [(1, 8), (4, 8), (8, 8)])
def test_the_pick_is_the_fastest_of_all_that_fit(search: LayoutSearch, gpus: int, batch: int) -> None:
    bounds = sorted(
        choice.needed.high for choice in try_everything(search, PLENTY, gpus=gpus, batch=batch) if choice.needed
    )
    for topology in (PLENTY, shrink(int(1.001 * bounds[len(bounds) // 3]))):
        everything = try_everything(search, topology, gpus=gpus, batch=batch)
        fitting = [choice for choice in everything if choice.fits]
        ranked = search.rank(topology, gpus=gpus, batch=batch)
        assert fitting
        assert find_rate(ranked[0]) == pytest.approx(max(map(find_rate, fitting)))
        rates = [find_rate(choice) for choice in ranked]
        assert rates == sorted(rates, reverse=True)
        assert all(choice.fits and choice.step.examples == batch for choice in ranked)
        assert len(ranked) <= 10


def test_each_layout_is_listed_once(search: LayoutSearch) -> None:
    ranked = search.rank(PLENTY, gpus=8, batch=32, most=1000)
    names = [str(choice.step.layout).partition(",micro=")[0] for choice in ranked]
    assert len(ranked) > 10
    shapes = [
        (name, choice.step.layout.interleave, choice.step.layout.pipeline_parallel)
        for name, choice in zip(names, ranked, strict=True)
    ]
    assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("usable", [10**6, 3 * 10**8])
def test_where_nothing_fits_it_is_that_which_needs_least(search: LayoutSearch, usable: int) -> None:
    """Nearly: the weights and the states of the optimizer decide, before or with what programs need besides."""
    small = shrink(usable)
    found = search.rank(small, gpus=4, batch=8)
    needed = [choice.needed.value for choice in try_everything(search, small, gpus=4, batch=8) if choice.needed]
    assert [choice.fits for choice in found] == [False]
    assert found[0].needed is not None
    assert min(needed) <= found[0].needed.value <= 1.1 * min(needed) < 1.2 * max(needed)
    assert found[0].risk > search.risk


def test_the_fastest_number_of_examples_at_once_that_fits(search: LayoutSearch) -> None:
    """With less memory, a step accumulates smaller batches."""
    tried = [search.predict(PLENTY, Layout(), batch=8, micro_batch=size) for size in (1, 2, 4, 8)]
    bounds = [int(choice.needed.high) + 1 for choice in tried if choice.needed]
    assert bounds == sorted(bounds)
    sizes = []
    for bound in bounds:
        topology = shrink(bound)
        choice = search.predict(topology, Layout(), batch=8)
        alone = [search.predict(topology, Layout(), batch=8, micro_batch=size) for size in (1, 2, 4, 8)]
        assert choice.fits
        assert find_rate(choice) == pytest.approx(max(find_rate(each) for each in alone if each.fits))
        assert choice.step.micro_batches * choice.step.workload.batch == 8
        sizes.append(choice.step.workload.batch)
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] == 8


def test_without_memory_everything_fits(recorded: RecordedStep, search: LayoutSearch) -> None:
    blind = LayoutSearch(RecordedStep(workload=recorded.workload), find_predictor=search._find_predictor)
    choice = blind.predict(shrink(1), Layout(), batch=4)
    assert choice.fits
    assert choice.needed is None


@pytest.mark.parametrize(
    ("layout", "batch", "micro_batch", "said"),
    [
        ("dp=8", 12, None, "batch.*a multiple of 8, the copies of the model"),
        ("dp=8", 0, None, "a multiple of 8"),
        ("dp=4", 16, 3, "a divisor of 4, the examples of each copy of the model in a step"),
        ("pp=2,micro=3", 8, None, "a divisor of 8"),
        ("pp=2,interleave=2", 3, None, "a multiple of the 2 stages, which interleave=2 needs"),
    ],
)
def test_batches_that_do_not_divide_are_refused(
    search: LayoutSearch, layout: str, batch: int, micro_batch: int | None, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        search.predict(PLENTY, parse_layout(layout), batch=batch, micro_batch=micro_batch)


def test_a_search_says_what_no_layout_can_do(search: LayoutSearch) -> None:
    with pytest.raises(SpecError, match=r"batch.*such as 16"):
        search.rank(PLENTY, gpus=16, batch=0)
    with pytest.raises(SpecError, match=r"micro-batch.*a divisor of 4"):
        search.rank(PLENTY, gpus=4, batch=16, micro_batch=5)


def test_candidates_are_what_a_model_can_have(search: LayoutSearch) -> None:
    language = list(LayoutCandidates(search.step.workload).list_all(PLENTY, 8))
    assert {layout.tensor_parallel for layout in language} == {1, 2, 4}  # in a node of four
    assert {layout.pipeline_parallel for layout in language} == {each for each in (1, 2, 4, 8) if each <= LAYERS}
    assert len(set(language)) == len(language)
    image = read_network("resnet", precision="bf16")
    assert {layout.model_parallel for layout in LayoutCandidates(image).list_all(PLENTY, 8)} == {1}


class Bare(nn.Module):
    """Attention with usual names, but in no repeated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, 64)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        width = self.embed_tokens(tokens)
        query, key, value = (
            layer(width).unflatten(2, (4, 16)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        scores: torch.Tensor = self.o_proj(found.transpose(1, 2).flatten(2))
        return scores


@pytest.mark.parametrize(("usable", "fits"), [(80 * 10**9, True), (10**6, False)])
def test_layouts_whose_memory_cannot_be_divided_are_left_out(usable: int, *, fits: bool) -> None:
    inputs = [parse_input(f"{BATCH},{TOKENS}:int64:{WORDS}")]
    options = StepOptions(optimizer="adamw", loss="sum")
    step = RecordedStep(
        workload=capture(Bare(), inputs, options=options, name="bare"),
        memory=capture_memory(Bare(), inputs, options=options),
    )
    search = LayoutSearch(step, find_predictor=build_figure_predictor)
    with pytest.raises(SpecError, match="a model with repeated layers"):
        search.predict(PLENTY, parse_layout("tp=4"), batch=16)
    found = search.rank(shrink(usable), gpus=4, batch=16)
    assert found
    assert all(choice.fits == fits and choice.step.layout.tensor_parallel == 1 for choice in found)
