"""One body, three heads, a weighted sum of their losses and a penalty on gradients of the input."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.Softplus(), nn.Linear(32, 32), nn.Softplus())
        self.classes, self.value, self.box = nn.Linear(32, 4), nn.Linear(32, 1), nn.Linear(32, 4)

    def forward(self, x):
        h = self.body(x)
        return {"classes": self.classes(h), "value": self.value(h).squeeze(-1), "box": self.box(h)}


model = Heads().to(device)
weights = {"classes": 1.0, "value": 0.5, "box": 2.0}
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
for step in range(20):
    x = torch.randn(8, 10, device=device, requires_grad=True)
    out = model(x)
    losses = {
        "classes": F.cross_entropy(out["classes"], torch.randint(4, (8,), device=device)),
        "value": F.huber_loss(out["value"], torch.randn(8, device=device)),
        "box": F.smooth_l1_loss(out["box"], torch.rand(8, 4, device=device)),
    }
    loss = sum(weights[name] * each for name, each in losses.items())
    (gradient,) = torch.autograd.grad(out["value"].sum(), x, create_graph=True)
    loss = loss + 0.1 * ((gradient.norm(2, dim=1) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
