"""Automatic mixed precision with a gradient scaler."""

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast

torch.backends.cudnn.benchmark = True
net = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(16 * 64, 10),
).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
scaler = GradScaler()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for step in range(20):
    images, labels = torch.randn(6, 1, 12, 12, device="cuda"), torch.randint(10, (6,), device="cuda")
    start.record()
    optimizer.zero_grad()
    with autocast():
        loss = nn.functional.cross_entropy(net(images), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=2.0)
    scaler.step(optimizer)
    scaler.update()
    end.record()
    torch.cuda.synchronize()
    print(
        step, loss.item(), norm.item(), scaler.get_scale(), start.elapsed_time(end), torch.cuda.max_memory_allocated()
    )
