"""A small transformer, and the memory of its training by PyTorch itself on one rank of several, without the others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from benchmarks.memory.live_bytes import LiveBytes
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS = 4
BATCH, TOKENS, WIDTH, VOCABULARY = 2, 64, 128, 512


class Attention(nn.Module):
    """Written with products and a softmax, which are the same on a CPU and a GPU."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.head_width = WIDTH // heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        parts = [
            each(given).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for each in (self.q_proj, self.k_proj, self.v_proj)
        ]
        weights = torch.softmax(parts[0] @ parts[1].transpose(-1, -2) * self.head_width**-0.5, dim=-1)
        return self.o_proj((weights @ parts[2]).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(given)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attention(), Mlp()

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        given = given + self.attn(self.norm1(given))
        return given + self.mlp(self.norm2(given))


class Transformer(nn.Module):
    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.num_heads = 4
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        given = self.embed_tokens(tokens)
        for layer in self.layers:
            given = layer(given)
        return self.lm_head(self.norm(given))


@contextmanager
def one_of(ranks: int = RANKS) -> Iterator[None]:
    """Be the first of several ranks, of which the others do not exist."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def measure_peak(
    shard: Callable[[Transformer], Transformer], *, batch: int = BATCH, steps: int = 2, foreach: bool = True
) -> int:
    """The most bytes that live at once while a model trains that was sharded."""
    torch.manual_seed(0)
    model = shard(Transformer())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
    live = LiveBytes()
    live.hold(model.parameters())
    for _step in range(steps):
        with live:
            optimizer.zero_grad()
            tokens = torch.randint(0, VOCABULARY, (batch, TOKENS))
            out = model(tokens)
            target = torch.zeros(batch * TOKENS, dtype=torch.int64)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), target)
            torch.autograd.backward(loss)
            optimizer.step()
    return live.peak
