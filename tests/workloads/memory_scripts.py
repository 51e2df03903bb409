"""Models and training scripts whose memory on a GPU is known."""

import torch
from torch import nn
from torch.nn import functional

LOOP = """
import copy, sys
import torch
from torch import nn
sys.path.insert(0, PATH)
from memory_scripts import build_model, build_attention, build_convolutions

torch.manual_seed(0)
device = torch.device("cuda")
BODY
"""
STEP = """
model = build_model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = [(torch.randn(32, 64), torch.randint(0, 8, (32,))) for _ in range(COUNT)]
for x, y in data:
    x, y = x.to(device), y.to(device)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DEEP = """
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(12)]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(64, 64, device=device)
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BODIES = {
    "plain": STEP.replace("COUNT", "4"),
    "one_step": STEP.replace("COUNT", "1"),
    "average": STEP.replace("COUNT", "4").replace("optimizer =", "average = copy.deepcopy(model)\noptimizer ="),
    "snapshot": STEP.replace("COUNT", "4").replace(
        "    optimizer.step()",
        "    optimizer.step()\n    best = {name: each.cpu() for name, each in model.state_dict().items()}",
    ),
    "data_on_gpu": STEP.replace("COUNT", "4").replace(
        "for x, y in data", "table = torch.randn(1000, 64).to(device)\nfor x, y in data"
    ),
    "slices": STEP.replace("COUNT", "4").replace(
        "for x, y in data:",
        "table = torch.randn(1000, 64)\nfor i, (_, y) in enumerate(data):\n    x = table[32 * i : 32 * i + 32]",
    ),
    "mixed": STEP.replace("COUNT", "4").replace(
        "    loss = nn", "    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = nn"
    ),
    "accumulation": """
model = build_model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    for part in range(4):
        x, y = torch.randn(32, 64, device=device), torch.randint(0, 8, (32,), device=device)
        nn.functional.cross_entropy(model(x), y).div(4).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "late_zero": DEEP,
    "early_zero": DEEP.replace("    optimizer.zero_grad()\n", "").replace(
        "    loss =", "    optimizer.zero_grad()\n    loss ="
    ),
    "workers": """
model = build_model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(512, 64), torch.randint(0, 8, (512,)))
for x, y in torch.utils.data.DataLoader(data, batch_size=32, num_workers=2, prefetch_factor=3, pin_memory=True):
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "attention": """
model = build_attention().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(4, 32, 64, device=device)
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
""",
    "convolutions": """
model = build_convolutions().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for step in range(3):
    x = torch.randn(8, 3, 32, 32).to(device)
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
""",
    "distributed": """
import os
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(build_model().to(device), device_ids=[0], gradient_as_bucket_view=VIEW)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    x, y = torch.randn(32, 64, device=device), torch.randint(0, 8, (32,), device=device)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
}
BODIES["distributed_view"] = BODIES["distributed"].replace("VIEW", "True")
BODIES["distributed"] = BODIES["distributed"].replace("VIEW", "False")


def build_model() -> nn.Module:
    """18,712 parameters."""
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8), nn.BatchNorm1d(8))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 3 * width)
        self.outer = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.inner(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = (each.transpose(1, 2) for each in split.unbind(2))
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1 if self.training else 0.0)
        return x + self.drop(self.outer(mixed.transpose(1, 2).reshape(batch, length, width)))


def build_attention() -> nn.Module:
    return nn.Sequential(Attention(64, 4), Attention(64, 4), nn.Linear(64, 16))


def build_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
