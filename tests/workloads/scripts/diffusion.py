"""A denoising diffusion model with an exponential moving average of its weights."""

import copy
import math

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps = 100
betas = torch.linspace(1e-4, 0.02, steps)
alphas_bar = torch.cumprod(1 - betas, dim=0).to(device)


class Denoiser(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        half = torch.exp(-math.log(10000) * torch.arange(8, device=t.device) / 8)
        angles = t[:, None].float() * half[None]
        emb = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        h = self.enter(x) + emb[:, :, None, None]
        return self.leave(nn.functional.silu(self.mid(nn.functional.silu(self.norm(h)))))


model = Denoiser().to(device)
ema = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
images = torch.rand(40, 1, 8, 8)
for epoch in range(10):
    for x0 in torch.utils.data.DataLoader(images, batch_size=8, shuffle=True, drop_last=True):
        x0 = x0.to(device) * 2 - 1
        t = torch.randint(0, steps, (x0.shape[0],), device=device)
        noise = torch.randn_like(x0)
        a = alphas_bar[t][:, None, None, None]
        loss = nn.functional.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(ema.parameters(), model.parameters()):
                p.lerp_(q, 0.01)
