"""Distil a frozen teacher into a smaller student."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
teacher = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 6)).to(device).eval()
for parameter in teacher.parameters():
    parameter.requires_grad = False
student = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 6)).to(device)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
T, alpha = 4.0, 0.7
for x, y in DataLoader(TensorDataset(torch.randn(60, 20), torch.randint(0, 6, (60,))), batch_size=12):
    x, y = x.to(device), y.to(device)
    with torch.no_grad():
        teacher_logits = teacher(x)
    student.train()
    logits = student(x)
    soft = F.kl_div(F.log_softmax(logits / T, -1), F.softmax(teacher_logits / T, -1), reduction="batchmean") * T * T
    loss = alpha * soft + (1 - alpha) * F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
