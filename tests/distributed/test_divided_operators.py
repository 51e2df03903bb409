"""The parts of GPUs that share a step: together they are the whole, and each is what PyTorch itself divides."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from tests.distributed.small_networks import (
    BATCH,
    EXPERTS,
    HEADS,
    LANGUAGE,
    LAYERS,
    TOKENS,
    WIDTH,
    WORDS,
    build_llama,
    read_network,
)
from tests.memory.sharded_training import one_of
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.core.errors import SpecError
from foretell.core.layouts import Layout, parse_layout
from foretell.core.workload import Operator, Shape, StepPhase, Workload
from foretell.distributed.divided_operators import Part, divide_operators, find_parts
from foretell.distributed.step_dimensions import GROUPED_PRODUCTS

INSIDE = (Part.COLUMNS, Part.BETWEEN, Part.ROWS, Part.VOCABULARY)


def divide(workload: Workload, layout: str) -> Workload:
    return divide_operators(workload, parse_layout(layout), find_parts(workload))


def compare(name: str, layout: str, *, precision: str = "fp32") -> dict[Part, float]:
    """How many times the FLOPs of a part's products one GPU has are those of the whole; of all if it has none."""
    whole = read_network(name, precision=precision)
    parts = find_parts(whole)
    sums = []
    for workload in (whole, divide(whole, layout)):
        products, flops = defaultdict[Part, float](float), defaultdict[Part, float](float)
        for operator, part in zip(workload.operators, parts, strict=True):
            if operator.kind == "embedding":
                continue  # its gradient is as large as its table
            products[part] += operator.product_flops
            flops[part] += operator.flops
        sums.append({part: products[part] or flops[part] for part in flops})
    return {part: sums[0][part] / sums[1][part] for part in sums[0] if sums[1][part]}


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_tensor_parallel_parts_are_the_whole_together(name: str, parts: int) -> None:
    ratios = compare(name, f"tp={parts}")
    for part in INSIDE:
        assert ratios[part] == pytest.approx(parts, rel=1e-6), part
    assert ratios[Part.UPDATE] == 1
    if name == "mixtral":
        assert ratios[Part.EXPERTS] == pytest.approx(parts)


@pytest.mark.parametrize("name", LANGUAGE)
def test_half_precision_is_divided_alike(name: str) -> None:
    assert compare(name, "tp=4", precision="bf16") == pytest.approx(compare(name, "tp=4"), rel=0.02)


def list_around(workload: Workload, parts: tuple[Part, ...]) -> Iterator[tuple[int, Operator]]:
    """Operators of each token outside of what columns and rows divide: norms, residuals."""
    for place, (operator, part) in enumerate(zip(workload.operators, parts, strict=True)):
        if part is Part.AROUND and operator.output == (BATCH, TOKENS, WIDTH):
            yield place, operator


@pytest.mark.parametrize("name", LANGUAGE)
def test_norms_are_only_divided_by_sequence_parallelism(name: str) -> None:
    whole = read_network(name)
    without, shared = divide(whole, "tp=4"), divide(whole, "tp=4,sp")
    around = list(list_around(whole, find_parts(whole)))
    assert len(around) > 6 * LAYERS
    for place, operator in around:
        assert without.operators[place] == operator
        assert shared.operators[place].output == (BATCH, TOKENS // 4, WIDTH)
        if operator.kind != "embedding":  # whose gradient is as large as its table
            assert shared.operators[place].flops == pytest.approx(operator.flops / 4)


@pytest.mark.parametrize("name", LANGUAGE)
def test_scores_of_words_are_those_of_whole_sequences(name: str) -> None:
    whole = read_network(name)
    for layout in ("tp=4", "tp=4,sp"):
        found = [each for each in divide(whole, layout).operators if each.kind == "cross_entropy"]
        assert {each.inputs[0] for each in found} == {(BATCH * TOKENS, WORDS // 4)}


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.parametrize("parts", [2, 8])
def test_context_parallelism_divides_everything(name: str, parts: int) -> None:
    whole = read_network(name)
    ratios = compare(name, f"cp={parts}")
    for part in set(ratios) - {Part.UPDATE}:
        assert ratios[part] == pytest.approx(parts, rel=0.01), part
    for operator, before in zip(divide(whole, f"cp={parts}").operators, whole.operators, strict=True):
        assert operator.parameters == before.parameters  # weights are not divided


@pytest.mark.parametrize("parts", [2, 4, 16])
def test_experts_are_divided_and_their_tokens_are_not(parts: int) -> None:
    """Each GPU has fewer experts, and sends as many tokens as it gets."""
    whole = read_network("mixtral")
    shared = divide(whole, f"ep={parts},dp={parts}")
    products = 0
    for operator, before in zip(shared.operators, whole.operators, strict=True):
        assert operator.product_flops == before.product_flops
        assert operator.output == before.output or operator.kind == "to"
        if operator.kind in GROUPED_PRODUCTS:
            products += 1
            assert before.inputs[1][0] == EXPERTS
            assert operator.inputs[1] == (EXPERTS // parts, *before.inputs[1][1:])
    assert products == 2 * LAYERS * 2


def test_tensor_parallel_gpus_of_experts_have_their_part_of_the_tokens() -> None:
    whole = read_network("mixtral")
    shared = divide(whole, "tp=2,ep=4,dp=2")
    for operator, before in zip(shared.operators, whole.operators, strict=True):
        if operator.kind in GROUPED_PRODUCTS:
            assert operator.inputs[0] == (before.inputs[0][0] // 2, before.inputs[0][1])
            assert operator.inputs[1][0] == EXPERTS // 4


def test_weights_of_layers_without_transpose_are_divided_as_well() -> None:
    """The layers of GPT-2 have their weights as (inputs, outputs), and the product adds a bias first."""
    shared = divide(read_network("gpt2"), "tp=4")
    rows, inner = BATCH * TOKENS, 4 * WIDTH
    products = {each.inputs for each in shared.operators if each.kind == "addmm"}
    assert products == {
        ((3 * WIDTH // 4,), (rows, WIDTH), (WIDTH, 3 * WIDTH // 4)),
        ((WIDTH,), (rows, WIDTH // 4), (WIDTH // 4, WIDTH)),
        ((inner // 4,), (rows, WIDTH), (WIDTH, inner // 4)),
        ((WIDTH,), (rows, inner // 4), (inner // 4, WIDTH)),
    }


def test_as_many_tokens_as_features_are_not_mistaken_for_each_other() -> None:
    """One sequence with as many tokens as a token has features."""
    options = {"layers": ("layers.0.self_attn.q_proj", "layers.0.self_attn.o_proj", "norm"), "name": "square"}
    side = 64
    product = {"phase": StepPhase.FORWARD, "dtype": "bfloat16"}
    embed = Operator(kind="embedding", inputs=((1, side), (99, side)), output=(1, side, side), **product)  # type: ignore[arg-type]
    cast = Operator(kind="to", inputs=((side, side),), output=(side, side), parameters=side * side, **product)  # type: ignore[arg-type]
    norm = Operator(
        kind="layer_norm",
        inputs=((1, side, side), (side,)),
        output=(1, side, side),
        parameters=side,
        **product,  # type: ignore[arg-type]
    )
    names = ("embed_tokens", "layers.0.attn.q_proj", "norm")
    whole = Workload(name=options["name"], operators=(embed, cast, norm), layers=names, batch=1)  # type: ignore[arg-type]
    parts = find_parts(whole)
    tensor = divide_operators(whole, parse_layout("tp=4,sp"), parts).operators
    assert tensor[1].inputs == ((side // 4, side),)
    assert tensor[2].inputs == ((1, side // 4, side), (side,))
    context = divide_operators(whole, parse_layout("cp=4"), parts).operators
    assert context[1].inputs == ((side, side),)
    assert context[2].inputs == ((1, side // 4, side), (side,))


@pytest.mark.parametrize(
    ("name", "layout", "said"),
    [
        ("llama", "tp=3", f"a divisor of the {2 * HEADS} heads"),
        ("llama", "cp=3", f"a divisor of the {TOKENS} tokens"),
        ("llama", "ep=2,dp=2", "'experts'"),
        ("resnet", "tp=2", "linear layers of known names"),
        ("resnet", "cp=2", "a model of sequences of tokens"),
    ],
)
def test_what_a_model_does_not_have_is_refused(name: str, layout: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        divide(read_network(name), layout)


def test_one_gpu_has_the_whole() -> None:
    whole = read_network("llama")
    assert divide_operators(whole, Layout(), find_parts(whole)) is whole


# Against PyTorch


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the shapes of the local products that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: Counter[tuple[int, int, int]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # what it runs on local tensors comes again
        if func is torch.ops.aten.mm.default and not isinstance(args[0], FakeTensor):
            first, second = (tuple(each.shape) for each in args[:2])
            self.found[first[0], first[1], second[1]] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore")  # the framework's own
@pytest.mark.parametrize("ranks", [2, 4])
def test_products_are_those_of_pytorchs_tensor_parallelism(ranks: int) -> None:
    plan: dict[str, ParallelStyle] = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate())}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        plan |= {f"{name}.self_attn.{each}_proj": ColwiseParallel() for each in "qkv"}
        plan |= {f"{name}.mlp.{each}_proj": ColwiseParallel() for each in ("gate", "up")}
        plan |= {f"{name}.self_attn.o_proj": RowwiseParallel(), f"{name}.mlp.down_proj": RowwiseParallel()}
    plan["lm_head"] = ColwiseParallel()
    with one_of(ranks):
        model = parallelize_module(build_llama(), init_device_mesh("cpu", (ranks,)), plan)
        with Products() as ran:
            out = model(torch.zeros((BATCH, TOKENS), dtype=torch.int64)).logits
    assert isinstance(model, nn.Module)
    assert out.shape == (BATCH, TOKENS, WORDS // ranks)
    divided = divide(read_network("llama"), f"tp={ranks}")
    predicted = Counter(
        _describe(each.inputs)
        for each in divided.operators
        if each.phase is StepPhase.FORWARD and each.kind == "linear"
    )
    assert predicted == ran.found


def _describe(inputs: tuple[Shape, ...]) -> tuple[int, int, int]:
    given, weight = inputs[:2]
    return math.prod(given[:-1]), given[-1], weight[0]
