"""Example tensors for the inputs of a model: integers and masks have values, floating-point numbers need none.

Integers are drawn below their limit, the same each time. By the name of the input, a mask is all ones, lengths are all
the longest, and offsets are evenly spaced from 0.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from foretell.workloads.known_tensors import find_fake_mode
from foretell.workloads.step_options import InputSpec

HIGH = 2  # limit of integers for which none is given


def build_example_input(given: InputSpec, floating: torch.dtype | None = None) -> torch.Tensor:
    """A tensor for an input; with ``floating``, that type replaces float32."""
    dtype: torch.dtype = getattr(torch, given.dtype)
    if not dtype.is_floating_point:
        return draw_integers(given, torch.Generator().manual_seed(0))
    with find_fake_mode():
        return torch.empty(given.shape, dtype=floating if floating and dtype is torch.float32 else dtype)


def draw_integers(given: InputSpec, generator: torch.Generator) -> torch.Tensor:
    """Integers or truth values for an input."""
    dtype: torch.dtype = getattr(torch, given.dtype)
    name = (given.name or "").rpartition(".")[2]
    high = given.high or HIGH
    if dtype is torch.bool or "mask" in name:
        return torch.ones(given.shape, dtype=dtype)
    if "length" in name:
        return torch.full(given.shape, max(1, given.high or 1), dtype=dtype)
    if "offset" in name:
        spaced = torch.arange(given.shape[-1]) * high // given.shape[-1]
        return spaced.expand(given.shape).to(dtype).contiguous()
    return torch.randint(0, high, given.shape, generator=generator).to(dtype)


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Let all random draws within be the same each time, and continue afterwards as if there had been none."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy:
                numpy.random.set_state(states[1])
