"""What GPUs exchange inside of layers, by the shapes that each of them has."""

from dataclasses import replace

import pytest
from tests.distributed.small_networks import BATCH, HEADS, LAYERS, TOKENS, WIDTH, read_network

from foretell.core.layouts import Layout, parse_layout
from foretell.distributed.shared_steps import Exchange, share_step
from foretell.steps.kernels.launch_times import expect_launches

ITEM = 4  # bytes of an element


def list_exchanges(name: str, layout: str, group: str) -> list[Exchange]:
    step = share_step(read_network(name), parse_layout(layout))
    return [each for each in step.exchanges if each.group == group]


@pytest.mark.parametrize(("tensor", "context"), [(1, 2), (1, 8), (2, 4), (4, 4), (8, 8)])
def test_context_parallel_gpus_exchange_the_keys_of_whole_sequences(tensor: int, context: int) -> None:
    """Of the heads that a GPU has by tensor parallelism, also where fewer heads than GPUs have keys."""
    found = list_exchanges("llama", f"tp={tensor},cp={context}", "context")
    key_heads = HEADS // tensor
    keys_and_values = 2 * BATCH * TOKENS * key_heads * (WIDTH // (2 * HEADS)) * ITEM
    assert [each.bytes_ for each in found] == [keys_and_values] * (3 * LAYERS)  # once forward, twice backward


@pytest.mark.parametrize("sharing", ["dp=8,ep=2", "dp=8,ep=8", "tp=2,dp=4,ep=4"])
def test_tokens_of_experts_are_sent_and_come_back(sharing: str) -> None:
    found = list_exchanges("mixtral", sharing, "experts")
    assert len({each.place for each in found}) * 2 == len(found)
    rows = {each.bytes_ / ITEM / WIDTH for each in found}
    tensor = parse_layout(sharing).tensor_parallel
    assert rows == {2 * BATCH * TOKENS / tensor}  # each token has two experts


@pytest.mark.parametrize("compiled", ["yes", "no"])
def test_only_layers_that_are_not_compiled_run_python_for_each_operation(compiled: str) -> None:
    workload = read_network("llama", precision="bf16")
    workload = replace(workload, settings={**workload.settings, "compile": compiled})
    alone, divided = (
        expect_launches(share_step(workload, layout).workload).total_s
        for layout in (Layout(), Layout(gpus=2, tensor_parallel=2))
    )
    assert divided == pytest.approx(alone) if compiled == "yes" else divided > 1.2 * alone
