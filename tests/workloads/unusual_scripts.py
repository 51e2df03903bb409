"""What scripts do beyond a plain loop: each is recorded in a process of its own, see ``test_unusual_scripts``."""

LOOP = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = "model(torch.rand(8, 16, device='cuda')).sum().backward()\noptimizer.step()\n"

SCRIPTS = {
    "accelerator": """
import torch
from torch.utils.data import DataLoader, TensorDataset

assert torch.accelerator.is_available()
device = torch.accelerator.current_accelerator()
with torch.Stream(device=device) as stream:
    torch.accelerator.synchronize()
model = torch.nn.Linear(16, 4).to(device)
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
for (x,) in DataLoader(TensorDataset(torch.rand(32, 16)), batch_size=8, num_workers=1, pin_memory=True):
    model(x.to(device)).sum().backward()
    optimizer.step()
""",
    "cuda_questions": LOOP
    + """
stats = torch.cuda.memory_stats()
assert stats["allocated_bytes.all.peak"] == 0 and torch.backends.cudnn.version() >= 8000
properties = torch.cuda.get_device_properties(0)
assert properties.L2_cache_size > 0 and torch.cuda.nccl.version() >= (2,)
torch.cuda.cudart().cudaProfilerStart()
x = torch.cuda.FloatTensor(8, 16).normal_()
assert isinstance(x, torch.cuda.FloatTensor) and x.type() == "torch.cuda.FloatTensor" and x.is_cuda
assert torch.rand(3).type(torch.cuda.HalfTensor).dtype is torch.float16
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
x.record_stream(side)
torch.compiler.cudagraph_mark_step_begin()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(x).sum().backward()
    optimizer.step()
""",
    "default_tensor_type": """
import torch

torch.set_default_tensor_type("torch.cuda.FloatTensor")
weight = torch.randn(16, 4, requires_grad=True)
optimizer = torch.optim.Adam([weight])
assert weight.is_cuda
(torch.rand(8, 16) @ weight).sum().backward()
optimizer.step()
""",
    "packed_sequences": """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

lstm, head = nn.LSTM(8, 12, batch_first=True).cuda(), nn.Linear(12, 3).cuda()
optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()])
x = torch.rand(4, 6, 8).cuda()
packed = pack_padded_sequence(x, torch.tensor([6, 2, 4, 1]), batch_first=True, enforce_sorted=False)
padded, lengths = pad_packed_sequence(lstm(packed)[0], batch_first=True)
assert padded.is_cuda
head(padded).sum().backward()
optimizer.step()
""",
    "lazy_modules": """
import torch
from torch import nn

model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(5)).cuda()
model(torch.rand(1, 3, 8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.rand(6, 3, 8, 8).cuda()).sum().backward()
optimizer.step()
""",
    "toggled_models": """
import torch
from torch import nn

make, judge = nn.Linear(8, 16).cuda(), nn.Linear(16, 1).cuda()
first, second = (torch.optim.Adam(each.parameters()) for each in (make, judge))
judge.requires_grad_(False)
judge(make(torch.rand(5, 8).cuda())).sum().backward()
first.step()
judge.requires_grad_(True)
judge(make(torch.rand(5, 8).cuda()).detach()).sum().backward()
second.step()
""",
    "trial_calls": LOOP
    + """
model(torch.zeros(1, 16).cuda())  # as for a summary
print(sum(model(torch.rand(100, 16).cuda()).sum().item() for _ in range(3)))  # an evaluation with gradients
"""
    + STEP,
    "threads": LOOP
    + """
import queue
import threading

batches = queue.Queue(2)


def load():
    while True:
        batches.put(torch.rand(8, 16).pin_memory() * 2)


def train():
    while True:
        model(batches.get().cuda()).sum().backward()
        optimizer.step()


threading.Thread(target=load, daemon=True).start()
trainer = threading.Thread(target=train)
trainer.start()
trainer.join()
""",
    "sharded": """
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4))
fully_shard(model[0], mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32))
assert isinstance(model, FSDPModule)
model.set_requires_gradient_sync(True)
optimizer = torch.optim.AdamW(model.parameters())
result = model(torch.rand(8, 16, device="cuda"))
assert result.dtype is torch.float32 and model[0].weight.dtype is torch.float32
result.sum().backward()
assert model[0].weight.grad.dtype is torch.float32
optimizer.step()
""",
    "new_precision_names": "import torch\n\ntorch.backends.cuda.matmul.fp32_precision = 'tf32'\n" + LOOP + STEP,
    "warm_up": LOOP + "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)\n" + STEP,
    "open_log": LOOP + "log = open('log.csv', 'w')\nlog.write('step,loss\\n0,')\n" + STEP,
    "own_operators": """
import torch


@torch.library.custom_op("own::gate", mutates_args=())
def gate(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("not implemented for CPUs")


@gate.register_fake
def _(x):
    return torch.empty_like(x)


gate.register_autograd(lambda ctx, gradient: gradient * 2)
model = torch.nn.Linear(16, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
gate(model(torch.rand(8, 16).cuda())).sum().backward()
optimizer.step()
""",
    "flex_attention": """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

model = torch.nn.Linear(64, 96).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 4096, 4096, device="cuda")
parts = model(torch.rand(2, 4096, 64).cuda()).chunk(3, -1)
query, key, value = (each.view(2, 4096, 2, 16).transpose(1, 2) for each in parts)
torch.compile(flex_attention)(query, key, value, block_mask=mask).sum().backward()
optimizer.step()
""",
    "offloaded": LOOP + "with torch.autograd.graph.save_on_cpu(pin_memory=True):\n    " + STEP.replace("\n", "\n    "),
    "double": LOOP.replace(".cuda()", ".cuda().double()") + STEP.replace("'cuda'", "'cuda', dtype=torch.float64"),
    "empty_selection": """
import torch

model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scores = model(torch.rand(512, 512).cuda())
loss = scores[scores > 0.5].mean()  # of none, because what is not computed is zero
assert torch.isfinite(loss)
loss.backward()
optimizer.step()
""",
}
