"""A LightningModule as users write it."""

from typing import Any

import lightning
import torch
from torch import nn
from torch.nn import functional


class Autoencoder(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.encoder, self.decoder = nn.Linear(width, 8), nn.Linear(8, width)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        x, labels = batch
        code = self.encoder(x)
        loss = functional.mse_loss(self.decoder(code), x) + functional.cross_entropy(code, labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Manual(Autoencoder):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
