"""Mixed precision with bfloat16: no scaler is needed."""

import torch
from torch import nn

assert torch.cuda.is_available() and torch.cuda.is_bf16_supported(), "this needs a GPU with bfloat16"
torch.set_float32_matmul_precision("high")
device = torch.device("cuda", torch.cuda.current_device())
properties = torch.cuda.get_device_properties(device)
print(properties.name, properties.total_memory // 2**30, "GiB", torch.cuda.get_device_capability())
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 2, 256, batch_first=True), num_layers=2).to(device)
head = nn.Linear(128, 5, device=device)
optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-4, weight_decay=0.01)
stream = torch.cuda.Stream()
for iteration in range(100):
    with torch.cuda.stream(stream):
        x = torch.randn(8, 12, 128).to(device)
    torch.cuda.current_stream().wait_stream(stream)
    y = torch.randint(5, (8,), device=device)
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(head(encoder(x).mean(1)), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
