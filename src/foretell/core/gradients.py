"""The buckets in which copies of a model exchange their gradients."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from foretell.core.workload import Workload

# Of PyTorch's DistributedDataParallel: dist._DEFAULT_FIRST_BUCKET_BYTES and bucket_cap_mb.
FIRST_BYTES = 2**20
CAP_BYTES = 25 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are sent together, and the operator after which the last of them is ready."""

    bytes_: int
    ready: int  # index of the operator


def fill_buckets(
    sizes: Iterable[float], *, first_bytes: float = FIRST_BYTES, cap_bytes: float = CAP_BYTES
) -> Iterator[slice]:
    """The gradients of each bucket, by the bytes of all gradients in the order in which they become ready.

    A bucket takes gradients until it has its size; the first may be smaller, to start sending early.
    """
    begin = end = 0
    held, limit = 0.0, first_bytes
    for end, size in enumerate(sizes, start=1):
        held += size
        if held >= limit:
            yield slice(begin, end)
            begin, held, limit = end, 0.0, cap_bytes
    if begin < end:
        yield slice(begin, end)


def find_buckets(workload: Workload, first_bytes: int = FIRST_BYTES, cap_bytes: int = CAP_BYTES) -> tuple[Bucket, ...]:
    """The buckets that PyTorch's ``DistributedDataParallel`` sends from its second iteration on, in order.

    https://docs.pytorch.org/docs/stable/notes/ddp.html
    """
    gradients = workload.gradients
    filled = fill_buckets((each.bytes_ for each in gradients), first_bytes=first_bytes, cap_bytes=cap_bytes)
    return tuple(
        Bucket(
            bytes_=sum(each.bytes_ for each in gradients[some]),
            ready=max(each.ready for each in gradients[some]),
        )
        for some in filled
    )
