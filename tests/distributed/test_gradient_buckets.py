"""Buckets of gradients are those that PyTorch fills."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

from foretell.core.gradients import Bucket, find_buckets
from foretell.core.workload import Gradient, Workload

torch = pytest.importorskip("torch")

MIB = 2**20


def make_workload(sizes: list[int]) -> Workload:
    return Workload(
        name="made up",
        operators=(),
        gradients=tuple(Gradient(bytes_=size, ready=10 + place) for place, size in enumerate(sizes)),
    )


def test_a_bucket_is_full_with_the_gradient_that_reaches_its_limit_and_ready_with_its_last() -> None:
    workload = make_workload([MIB // 2, MIB, 20 * MIB, 10 * MIB, MIB])
    assert find_buckets(workload) == (
        Bucket(bytes_=3 * MIB // 2, ready=11),
        Bucket(bytes_=30 * MIB, ready=13),
        Bucket(bytes_=MIB, ready=14),
    )


def test_without_gradients_nothing_is_sent() -> None:
    assert find_buckets(make_workload([])) == ()


@settings(deadline=None, max_examples=50)
@given(draw.lists(draw.integers(1, 300), min_size=1, max_size=30))
def test_they_are_those_of_the_frameworks_own_assignment(counts: list[int]) -> None:
    tensors = [torch.empty(count) for count in counts]
    places, _ = torch.distributed._compute_bucket_assignment_by_size(
        tensors, [100, 1000], [False] * len(tensors), list(range(len(tensors)))
    )
    expected = [sum(4 * counts[place] for place in bucket) for bucket in places]
    predicted = find_buckets(make_workload([4 * count for count in counts]), first_bytes=100, cap_bytes=1000)
    assert [bucket.bytes_ for bucket in predicted] == expected
    assert [bucket.ready - 10 for bucket in predicted] == [max(bucket) for bucket in places]
