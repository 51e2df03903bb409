"""Gradient checkpointing in both of PyTorch's forms."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4)])
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            x = x + checkpoint(block, x, use_reentrant=i % 2 == 1)
        return self.head(x)


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
for step in range(10):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 16).cuda()), torch.randint(3, (8,)).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
