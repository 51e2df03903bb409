"""A step that was read with one batch, resized to another, is the step as it is read with that batch."""

import pytest
from tests.distributed.small_networks import IMAGES, LANGUAGE, read_network

from foretell.core.workload import Operator, StepPhase
from foretell.distributed.step_dimensions import resize_batch

FROM, TO = 8, 4
# Work in other proportions than the tensors: n log n, and what does not depend on the batch at all.
SMALL = ("sort", "arange", "histc", "cumsum")


def describe(operator: Operator) -> tuple[object, ...]:
    """What a resized operator has to have exactly."""
    return operator.kind, operator.phase, operator.inputs, operator.output, operator.attributes, operator.parameters


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", [*LANGUAGE, *IMAGES])
def test_operators_are_those_of_the_other_batch(name: str, precision: str) -> None:
    resized = resize_batch(read_network(name, batch=FROM, precision=precision), TO)
    read = read_network(name, batch=TO, precision=precision)
    assert resized.batch == TO
    assert len(resized.operators) == len(read.operators)
    for one, other in zip(resized.operators, read.operators, strict=True):
        if (TO,) in one.inputs and (FROM,) in other.inputs:
            continue  # as many frequencies or experts as examples
        assert describe(one) == describe(other)
        if one.kind not in SMALL:
            assert one.flops == pytest.approx(other.flops, rel=0.01), one
            assert one.product_flops == pytest.approx(other.product_flops), one
        if one.phase is not StepPhase.BACKWARD:  # whose gradients of weights are no part of its shapes
            assert one.bytes_moved == pytest.approx(other.bytes_moved, rel=0.1), one
    assert resized.bytes_moved == pytest.approx(read.bytes_moved, rel=0.05)
    assert resized.gradients == read.gradients


@pytest.mark.parametrize("batch", [16, 32, 64])
def test_filters_and_casts_with_as_many_channels_as_examples_stay_as_they_are(batch: int) -> None:
    resized = resize_batch(read_network("resnet", batch=batch, precision="bf16"), TO)
    read = read_network("resnet", batch=TO, precision="bf16")
    assert list(map(describe, resized.operators)) == list(map(describe, read.operators))
    assert resized.product_flops == pytest.approx(read.product_flops)


def test_the_same_batch_is_the_same_step() -> None:
    read = read_network("resnet", batch=TO)
    assert resize_batch(read, TO) is read
