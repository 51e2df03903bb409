"""Buckets computed from a step are those of real distributed training."""

from collections.abc import Iterator

import pytest
import torch
from tests.workloads.test_capture import read
from torch import distributed, nn
from torch._C._distributed_c10d import GradBucket, HashStore
from torch.nn.parallel import DistributedDataParallel

from foretell.core.gradients import find_buckets


class Wide(nn.Module):
    """Its parameters are made in another order than they are used in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(512, 16)
        self.second = nn.Linear(512, 512)
        self.first = nn.Linear(256, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


@pytest.fixture
def alone() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # the framework's own
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("cap", [1, 25])
def test_buckets_of_a_worker_after_its_first_iteration(cap: int) -> None:
    sent: list[int] = []

    def send(_: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        sent.append(4 * bucket.buffer().numel())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    worker = DistributedDataParallel(Wide(), bucket_cap_mb=cap if cap != 25 else None)
    worker.register_comm_hook(None, send)
    for _ in range(2):
        sent.clear()
        worker(torch.rand(2, 256)).sum().backward()
    predicted = find_buckets(read(Wide(), "2,256", loss="sum"), first_bytes=2**20, cap_bytes=cap * 2**20)
    assert [bucket.bytes_ for bucket in predicted] == sent
    assert len(sent) == 2
