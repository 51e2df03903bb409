"""Of layouts that are about as fast as each other, the simplest is advised."""

import pytest

from foretell.advice.training_candidates import put_simple_first
from foretell.core.devices import get_device
from foretell.core.layouts import parse_layout
from foretell.core.prediction import Estimate
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.layout_search import LayoutChoice
from foretell.distributed.parallel_results import ParallelStep


def _build(layout: str, seconds: float) -> LayoutChoice:
    step = ParallelStep(
        workload=Workload(name="net", operators=()),
        layout=parse_layout(layout, gpus=8),
        topology=Topology(device=get_device("A100")),
        step=Estimate(value=seconds, low=seconds, high=seconds, level=0.9),
    )
    return LayoutChoice(step=step)


@pytest.mark.parametrize(
    ("choices", "first"),
    [
        ([("fsdp", 1.00), ("ddp", 1.04)], "ddp"),
        ([("fsdp", 1.00), ("ddp", 1.20)], "fsdp"),
        ([("tp=2,zero1", 1.00), ("fsdp", 1.03)], "fsdp"),
        ([("pp=2,interleave=2,ddp", 1.00), ("pp=2,ddp", 1.02)], "dp=4,ddp,pp=2"),
        ([("ddp", 1.00), ("fsdp", 1.01)], "ddp"),
    ],
)
def test_the_simplest_of_those_close_to_the_fastest_is_first(choices: list[tuple[str, float]], first: str) -> None:
    built = [_build(*each) for each in choices]
    found = put_simple_first(built)
    assert str(found[0].step.layout) == first
    assert sorted(map(id, found)) == sorted(map(id, built))


def test_nothing_fits() -> None:
    assert put_simple_first([]) == []
