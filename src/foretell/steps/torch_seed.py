"""PyTorch with a seed and threads of its own."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_seed(*, seed: int, threads: int = 1) -> Iterator[None]:
    """With this seed and so many threads; afterwards all is as it was."""
    import torch  # late: an extra

    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
