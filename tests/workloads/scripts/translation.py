"""Translate with PyTorch's own transformer: masks, padding and label smoothing."""

import torch
from torch import nn

PAD, VOCABULARY, DIM = 0, 40, 128
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(VOCABULARY, DIM, PAD), nn.Embedding(VOCABULARY, DIM, PAD)
        self.transformer = nn.Transformer(DIM, 2, 1, 1, 256, dropout=0.1, batch_first=True)
        self.generator = nn.Linear(DIM, VOCABULARY)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], device=tgt.device)
        pad_src, pad_tgt = src == PAD, (tgt == PAD).float().masked_fill(tgt == PAD, float("-inf"))
        out = self.transformer(
            self.source(src),
            self.target(tgt),
            tgt_mask=mask,
            src_key_padding_mask=pad_src,
            tgt_key_padding_mask=pad_tgt,
            memory_key_padding_mask=pad_src,
        )
        return self.generator(out)


def collate(pairs):
    pad = nn.utils.rnn.pad_sequence
    return tuple(pad([pair[i] for pair in pairs], batch_first=True, padding_value=PAD) for i in range(2))


pairs = [(torch.randint(1, VOCABULARY, (5 + i % 4,)), torch.randint(1, VOCABULARY, (4 + i % 5,))) for i in range(24)]
loader = torch.utils.data.DataLoader(pairs, batch_size=6, collate_fn=collate)
model = Translator().to(device)
for parameter in model.parameters():
    if parameter.dim() > 1:
        nn.init.xavier_uniform_(parameter)
criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
for epoch in range(18):
    for src, tgt in loader:
        src, tgt = src.to(device), tgt.to(device)
        logits = model(src, tgt[:, :-1])
        loss = criterion(logits.reshape(-1, VOCABULARY), tgt[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
