"""Runs PyTorch with a fixed seed and number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_seed(*, seed: int, threads: int = 1) -> Iterator[None]:
    """Use this seed and number of threads; both are restored afterwards."""
    import torch  # an optional dependency

    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
