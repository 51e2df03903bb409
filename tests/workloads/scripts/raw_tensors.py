"""Logistic regression on tensors, without a module."""

import torch

x, y = torch.randn(64, 90), torch.randint(0, 2, (64,)).float()
w = torch.zeros(90, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
hidden = torch.randn(90, 90, requires_grad=True)
optimizer = torch.optim.Adam([w, b, hidden], lr=0.1)
for epoch in range(10):
    probability = torch.sigmoid((torch.tanh(x @ hidden) @ w).squeeze(1) + b)
    loss = -(y * probability.log() + (1 - y) * (1 - probability).log()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
