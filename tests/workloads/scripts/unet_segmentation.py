"""Segment images with a U-Net; the loss is cross entropy and Dice."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def double_conv(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, classes=3, width=4):
        super().__init__()
        self.down1, self.down2 = double_conv(3, width), double_conv(width, 2 * width)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.conv = double_conv(2 * width, width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.up(self.down2(self.pool(a)))
        dy, dx = a.size(2) - b.size(2), a.size(3) - b.size(3)
        b = F.pad(b, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(self.conv(torch.cat([a, b], dim=1)))


def dice_loss(probabilities, target):
    inter = 2 * (probabilities * target).sum(dim=(-1, -2))
    sums = probabilities.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    return 1 - (torch.where(sums == 0, inter, (inter + 1e-6) / (sums + 1e-6))).mean()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = TensorDataset(torch.rand(30, 3, 18, 18), torch.randint(0, 3, (30, 18, 18)))
train_set, val_set = random_split(dataset, [24, 6], generator=torch.Generator().manual_seed(0))
train_loader = DataLoader(train_set, shuffle=True, batch_size=3)
val_loader = DataLoader(val_set, batch_size=3)
model = UNet().to(device=device, memory_format=torch.channels_last)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, weight_decay=1e-8, momentum=0.999, foreach=True)


@torch.inference_mode()
def evaluate():
    model.eval()
    score = sum(
        1 - dice_loss(F.softmax(model(x.to(device)), 1), F.one_hot(y.to(device), 3).permute(0, 3, 1, 2).float()).item()
        for x, y in val_loader
    )
    model.train()
    return score / max(len(val_loader), 1)


print("before training", evaluate())
for epoch in range(1, 6):
    model.train()
    for images, true_masks in train_loader:
        images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
        true_masks = true_masks.to(device=device, dtype=torch.long)
        masks = model(images)
        loss = F.cross_entropy(masks, true_masks)
        loss += dice_loss(F.softmax(masks, dim=1).float(), F.one_hot(true_masks, 3).permute(0, 3, 1, 2).float())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(evaluate())
