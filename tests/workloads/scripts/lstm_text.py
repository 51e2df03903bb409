"""A language model of words with an LSTM and truncated backpropagation through time."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
tokens = torch.randint(0, 100, (400,))
bptt, batch_size = 7, 4


def batchify(data):
    count = data.size(0) // batch_size
    return data[: count * batch_size].view(batch_size, -1).t().contiguous().to(device)


class WordModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(100, 64)
        self.rnn = nn.LSTM(64, 256, num_layers=2, dropout=0.2)
        self.decoder = nn.Linear(256, 100)
        self.drop = nn.Dropout(0.2)

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return nn.functional.log_softmax(self.decoder(self.drop(out)).view(-1, 100), dim=1), hidden

    def init_hidden(self):
        weight = next(self.parameters())
        return weight.new_zeros(2, batch_size, 256), weight.new_zeros(2, batch_size, 256)


model = WordModel().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=20)
train_data = batchify(tokens)
for epoch in range(3):
    hidden = model.init_hidden()
    for i in range(0, train_data.size(0) - 1, bptt):
        length = min(bptt, len(train_data) - 1 - i)
        data, targets = train_data[i : i + length], train_data[i + 1 : i + 1 + length].view(-1)
        hidden = tuple(h.detach() for h in hidden)
        model.zero_grad()
        output, hidden = model(data, hidden)
        loss = nn.functional.nll_loss(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
