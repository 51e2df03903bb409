import numpy as np
import torch


class Windows(torch.utils.data.Dataset):
    def __init__(self, window, horizon):
        self.series = np.random.default_rng(0).normal(size=(120, 3)).astype("float32")
        self.window, self.horizon = window, horizon

    def __len__(self):
        return len(self.series) - self.window - self.horizon

    def __getitem__(self, i):
        end = i + self.window
        return self.series[i:end], self.series[end : end + self.horizon, 0]
