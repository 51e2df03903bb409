"""A recommendation model: embedding bags, two perceptrons, and products of all pairs."""

import torch
from torch import nn

device = torch.device("cuda:0")
rows, dim, tables = [1000, 200, 50], 32, 3


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows])
        self.bottom = nn.Sequential(nn.Linear(13, 96), nn.ReLU(), nn.Linear(96, dim), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(dim + tables * (tables + 1) // 2, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        all_ = torch.stack([x, *[bag(i, o) for bag, i, o in zip(self.bags, indices, offsets)]], dim=1)
        products = torch.bmm(all_, all_.transpose(1, 2))
        li, lj = torch.tril_indices(tables + 1, tables + 1, offset=-1, device=dense.device)
        return torch.sigmoid(self.top(torch.cat([x, products[:, li, lj]], dim=1)))


model = DLRM().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    dense = torch.rand(16, 13).to(device)
    indices = [torch.randint(n, (48,)).to(device) for n in rows]
    offsets = [torch.arange(0, 48, 3).to(device) for _ in rows]
    clicks = torch.randint(0, 2, (16, 1)).float().to(device)
    loss = nn.functional.binary_cross_entropy(model(dense, indices, offsets), clicks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
