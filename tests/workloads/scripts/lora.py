"""Fine-tune low-rank adapters of a frozen network."""

import math

import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.a.t() @ self.b.t())


def add_adapters(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALinear(child))
        else:
            add_adapters(child)


model = nn.Sequential(
    nn.Embedding(60, 24), nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24), nn.LayerNorm(24), nn.Linear(24, 60)
)
model.requires_grad_(False)
add_adapters(model)
model.to("cuda", dtype=torch.bfloat16)
trainable = [p for p in model.parameters() if p.requires_grad]
print(f"training {sum(p.numel() for p in trainable)} of {sum(p.numel() for p in model.parameters())} parameters")
optimizer = torch.optim.AdamW(trainable, lr=2e-4)
for step in range(10):
    ids = torch.randint(0, 60, (4, 12), device="cuda")
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
