"""Gradients on their way: the buckets in which data-parallel training sends them."""

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.entities.workload import Gradient, Workload

FIRST_BYTES = 2**20  # PyTorch's own, and the next one too
CAP_BYTES = 25 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are sent together: how large they are, and after which operator the last of them is ready."""

    bytes_: int
    ready: int  # place of the operator


def find_buckets(workload: Workload, first_bytes: int = FIRST_BYTES, cap_bytes: int = CAP_BYTES) -> tuple[Bucket, ...]:
    """The buckets that PyTorch's ``DistributedDataParallel`` sends from its second iteration on, in their order.

    Gradients go into a bucket as they are ready; it is full with the one that reaches its limit. The first is small, so
    that sending begins early. https://docs.pytorch.org/docs/stable/notes/ddp.html
    """
    buckets: list[Bucket] = []
    held: list[Gradient] = []
    for gradient in workload.gradients:
        held.append(gradient)
        if sum(each.bytes_ for each in held) >= (cap_bytes if buckets else first_bytes):
            buckets.append(_close(held))
            held = []
    return (*buckets, _close(held)) if held else tuple(buckets)


def _close(held: Sequence[Gradient]) -> Bucket:
    return Bucket(bytes_=sum(each.bytes_ for each in held), ready=max(each.ready for each in held))
