"""Calls on large tensors return zeros of the right form and take no memory; small ones are computed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.workloads.scripts.large_tensors import ELEMENTS, make_zeros, run_kernel

SIDE = 4096  # of a matrix that is large


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run_kernel(func, args, kwargs or {})


@pytest.fixture
def mode() -> Iterator[None]:
    with _Mode():  # type: ignore[no-untyped-call]
        yield


def read_memory() -> int:
    """Bytes in memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.usefixtures("mode")
class TestCalls:
    def test_small_calls_are_computed(self) -> None:
        x = torch.arange(6.0).reshape(2, 3)
        assert torch.equal(x @ x.t(), torch.tensor([[5.0, 14.0], [14.0, 50.0]]))
        assert x.sum().item() == 15.0

    def test_large_calls_are_zeros_of_the_same_form(self) -> None:
        x = torch.ones(SIDE, SIDE)
        assert (x @ x.t())[5, 5].item() == 0.0
        assert (x.half() @ x.half()).dtype is torch.float16
        image = torch.randn(64, 16, 64, 64).to(memory_format=torch.channels_last)
        out = torch.nn.functional.conv2d(image, torch.randn(32, 16, 3, 3), stride=2)
        assert out.shape == (64, 32, 31, 31)

    def test_large_tensors_take_no_memory(self) -> None:
        before = read_memory()
        tensors = [torch.randn(2**28) for _ in range(64)]  # 64 GB
        total = sum(each.square().mean() for each in tensors)
        assert float(total) == 0.0
        assert read_memory() - before < 2**28

    def test_gradients_and_updates_pass_through(self) -> None:
        layer = torch.nn.Linear(SIDE, SIDE)
        optimizer = torch.optim.AdamW(layer.parameters())
        loss = layer(torch.randn(512, SIDE)).square().mean()
        loss.backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.shape == (SIDE, SIDE)
        assert torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0).item() == 0.0
        optimizer.step()

    def test_whole_numbers_and_masks_are_computed(self) -> None:
        ids = torch.arange(4 * ELEMENTS)
        assert int((ids % 7 == 3).sum()) == len([each for each in range(4 * ELEMENTS) if each % 7 == 3])
        assert torch.nonzero(ids < 3).flatten().tolist() == [0, 1, 2]

    def test_values_in_place_stay_where_a_call_is_too_large(self) -> None:
        x = torch.zeros(SIDE, SIDE)
        view = x[:2]
        x.add_(1.0)
        assert view.data_ptr() == x.data_ptr()
        assert x[0, 0].item() == 0.0

    def test_types_that_a_cpu_does_not_know_are_zeros(self) -> None:
        out = torch.ops.aten._scaled_dot_product_flash_attention(*[torch.ones(1, 2, 4, 8).half()] * 3)
        assert out[0].shape == (1, 2, 4, 8)

    def test_results_of_the_same_call_are_different_tensors(self) -> None:
        x, y = torch.ones(SIDE, SIDE), torch.ones(SIDE, SIDE)
        first, second = x + y, x + y
        assert first.data_ptr() != second.data_ptr()
        assert (y.add_(x) is y, x.add_(y) is x, x.add_(x) is x) == (True, True, True)
        assert (x.double() + y.double()).dtype is torch.float64
        assert (x.t() + y.t()).stride() == (1, SIDE)
        assert x.sum(0).shape == (SIDE,)
        assert x.sum(1, True).shape == (SIDE, 1)
        values, places = x.max(1)
        assert (values.dtype, places.dtype) == (torch.float32, torch.int64)

    def test_errors_of_the_user_stay(self) -> None:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.ones(2, 3) @ torch.ones(2, 3)
        with pytest.raises(RuntimeError):
            torch.ones(SIDE, SIDE) @ torch.ones(SIDE + 1, SIDE)


def test_strides_are_kept() -> None:
    like = torch.empty(300, 8, 64, device="meta").transpose(0, 2)
    made = make_zeros(like.size(), like.stride(), like.dtype)
    assert (made.shape, made.stride()) == (like.shape, like.stride())
