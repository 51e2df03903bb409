"""Small known values are computed as they are; everything else runs without data, and reading it is noted."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from foretell.workloads.capture import capture
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.known_tensors import is_known, remove_data
from foretell.workloads.step_options import StepOptions, parse_input


@pytest.fixture
def data() -> torch.Tensor:
    """Large activations without data."""
    return remove_data(torch.empty(8, 32))


class TestKnown:
    def test_small_values_are_computed(self) -> None:
        mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
        with HybridTensors() as tensors:
            lengths = mask.sum(1)
            longest = int(lengths.max())
            places = torch.arange(3, device="cuda")[None] < lengths[:, None].to("cuda")
            assert longest == 2
            assert places.tolist() == mask.bool().tolist()
            assert torch.equal(lengths.cpu(), torch.tensor([2, 1]))
            assert f"{lengths[0]}" == "2"
        assert tensors.notes == ()

    def test_random_draws_are_values(self) -> None:
        with HybridTensors() as tensors:
            draws = [torch.rand(()).item() for _ in range(20)]
        assert len(set(draws)) == 20
        assert tensors.notes == ()

    def test_form_alone_makes_known_values(self, data: torch.Tensor) -> None:
        with HybridTensors():
            made = torch.ones_like(data, dtype=torch.bool), data.new_full((2, 2), 3.0), torch.zeros(data.shape)
        assert [float(each.sum()) for each in made] == [256, 12, 0]

    def test_large_tensors_take_no_memory(self) -> None:
        with HybridTensors():
            large = torch.zeros(2**20, 2**20) + torch.arange(2**20)
            layer = nn.Linear(2**20, 2**20)
        assert isinstance(large, FakeTensor)
        assert large.shape == (2**20, 2**20)
        assert isinstance(layer.weight, nn.Parameter)

    def test_results_too_large_have_no_data(self) -> None:
        with HybridTensors():
            assert not is_known(functional.one_hot(torch.arange(2**12), 2**14))
            assert is_known(functional.one_hot(torch.arange(4), 16))

    def test_known_and_unknown_mix(self, data: torch.Tensor) -> None:
        mask = torch.arange(8) < 3
        with HybridTensors() as tensors:
            assert data[mask].shape == (3, 32)
            assert data.masked_select(mask[:, None]).shape == (96,)
            chosen = torch.where(mask[:, None], data, 0.0)
            chosen[mask] = 1.0
            assert chosen.shape == (8, 32)
        assert tensors.notes == ()

    def test_what_is_written_from_unknown_values_is_unknown(self, data: torch.Tensor) -> None:
        with HybridTensors() as tensors:
            total = torch.zeros(8, 32)
            first = total[0]
            assert is_known(first)
            total[1:].copy_(data[1:])
            assert not is_known(total)
            assert not is_known(first)
            assert isinstance(total + 1, FakeTensor)
        assert tensors.notes == ()

    def test_padded_sequences_are_packed_by_their_lengths(self) -> None:
        data = remove_data(torch.empty(3, 5, 4))
        with HybridTensors():
            lengths = torch.tensor([5, 3, 1])
            packed = nn.utils.rnn.pack_padded_sequence(data, lengths, batch_first=True)
            assert packed.data.shape == (9, 4)
            assert packed.batch_sizes.tolist() == [3, 2, 2, 1, 1]
            out, sizes = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        assert out.shape == (3, 5, 4)
        assert sizes.tolist() == [5, 3, 1]


class TestUnknown:
    @pytest.mark.parametrize(
        ("read", "expected"),
        [
            (lambda x: x.sum().item(), 1.0),
            (lambda x: bool(x.sum() > 0), False),
            (lambda x: bool(x.isfinite().all()), True),
            (lambda x: bool((~torch.isfinite(x)).any()), False),
            (lambda x: bool(x.isnan().any()), False),
            (lambda x: bool(x.isnan().any() or x.isinf().any()), False),
            (lambda x: bool((x == x).all()), True),
            (lambda x: bool((x >= x.mean()).all()), True),
            (lambda x: torch.allclose(x, x + 1), True),
            (lambda x: x.argmax(1).tolist(), [1] * 8),
            (lambda x: x[0, :2].detach().cpu().numpy().tolist(), [1.0, 1.0]),
            (lambda x: float(np.asarray(x).mean()), 1.0),
            (lambda x: f"{x.mean():.2f}", "1.00"),
            (lambda x: torch.tensor([x[0, 0], x[0, 1]]).tolist(), [1.0, 1.0]),
        ],
    )
    def test_reading_gives_an_example_and_a_note_with_the_line(
        self, data: torch.Tensor, read: Callable[[torch.Tensor], object], expected: object
    ) -> None:
        with HybridTensors() as tensors:
            assert read(data) == expected
        assert tensors.notes
        assert all("test_hybrid_tensors.py:" in note for note in tensors.notes)

    def test_shapes_that_depend_on_unknown_values_are_assumed(self, data: torch.Tensor) -> None:
        with HybridTensors() as tensors:
            assert (data > 0).nonzero().shape == (128, 2)
            assert data[data > 0].shape == (128,)
            assert torch.unique(data[:, 0]).shape == (8,)
            assert data.argmax(1).bincount(minlength=4).shape == (4,)
        assert len(tensors.notes) == 3

    def test_tokens_are_spread_evenly_over_experts(self) -> None:
        scores = remove_data(torch.empty(64, 8))
        with HybridTensors():
            chosen = scores.topk(2).indices
            mask = functional.one_hot(chosen, num_classes=8).permute(2, 1, 0)
            experts = (mask.sum((-1, -2)) > 0).nonzero().flatten().tolist()
            tokens = [len(torch.where(mask[expert])[1]) for expert in experts]
            counts = torch.histc(chosen.float(), bins=8, min=0, max=7).int().tolist()
        assert experts == list(range(8))
        assert tokens == counts == [16] * 8


class TestSteps:
    """A step within, as a script does it: parameters have data, and the optimizer holds them."""

    @pytest.mark.parametrize("foreach", [False, True])
    @pytest.mark.parametrize("family", [torch.optim.SGD, torch.optim.AdamW])
    def test_real_parameters_keep_their_values(
        self, family: type[torch.optim.SGD | torch.optim.AdamW], foreach: bool
    ) -> None:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
        model(torch.zeros(2, 3, 8, 8))
        before = copy.deepcopy(model.state_dict())
        optimizer = family(model.parameters(), lr=0.1, foreach=foreach)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
        with HybridTensors() as tensors:
            for _ in range(2):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(torch.randn(512, 3, 8, 8)), torch.randint(10, (512,)))
                loss.backward()  # type: ignore[no-untyped-call]
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                assert (loss.item(), float(norm)) == (1.0, 1.0)
        assert len(tensors.notes) == 1
        parameters = dict(model.named_parameters())
        assert all(torch.equal(value, parameters[name]) for name, value in before.items() if name in parameters)
        assert schedule.get_last_lr() != [0.1]

    def test_gradients_are_scaled(self) -> None:
        layer = nn.Linear(512, 512)
        optimizer, scaler = torch.optim.SGD(layer.parameters(), 0.1), torch.amp.GradScaler("cpu")
        with HybridTensors():
            loss = layer(torch.randn(1024, 512)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() > 0

    def test_models_without_data_are_moved_and_converted(self) -> None:
        with HybridTensors():
            layer = nn.Linear(512, 512).to("cuda").half()
            assert layer(torch.empty(2048, 512, dtype=torch.half)).dtype is torch.half
            assert {each.dtype for each in layer.parameters()} == {torch.half}


def test_code_inside_vmap_is_recorded() -> None:
    class Batched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(lambda one: one @ one.T)(self.first(x))

    workload = capture(Batched(), [parse_input("2,4,8")], options=StepOptions(mode="inference"))
    assert workload.product_flops == 2 * 2 * 4 * 8 * (8 + 4)
