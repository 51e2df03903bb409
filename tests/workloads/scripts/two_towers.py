"""Contrastive learning of two towers, images and texts."""

import torch
import torch.nn.functional as F
from torch import nn


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn, self.out = nn.Embedding(50, 64), nn.GRU(64, 192, batch_first=True), nn.Linear(192, 32)

    def forward(self, ids):
        return self.out(self.rnn(self.embedding(ids))[0][:, -1])


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
image = nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 9, 32)).to(device)
text = Text().to(device)
scale = nn.Parameter(torch.tensor(2.6592, device=device))
optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters(), scale], lr=1e-3)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.rand(32, 3, 8, 8), torch.randint(0, 50, (32, 9))), batch_size=8
)
for epoch in range(3):
    for pictures, captions in loader:
        a = F.normalize(image(pictures.to(device)), dim=-1)
        b = F.normalize(text(captions.to(device)), dim=-1)
        logits = scale.exp() * a @ b.t()
        labels = torch.arange(len(logits), device=device)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, 4.6052)
