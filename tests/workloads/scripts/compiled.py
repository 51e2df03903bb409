"""A compiled model in channels-last memory format."""

import torch
from torch import nn

device = "cuda"
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1), nn.Flatten(1))
model = model.to(device, memory_format=torch.channels_last)
model = torch.compile(model, mode="max-autotune")
head = nn.Linear(16 * 64, 2).to(device)
head.compile()


@torch.compile
def loss_function(scores, target):
    return nn.functional.cross_entropy(scores, target)


optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=torch.tensor(1e-3), fused=True)
for _ in range(5):
    x = torch.randn(4, 3, 8, 8, device=device).to(memory_format=torch.channels_last)
    optimizer.zero_grad(set_to_none=True)
    loss_function(head(model(x)), torch.zeros(4, dtype=torch.long, device=device)).backward()
    optimizer.step()
