"""Forecast a series: python -m forecast.train."""

import argparse

import torch

from .data import Windows
from .network import Forecaster


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--window", type=int, default=10)
    parser.add_argument("--horizon", type=int, default=2)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Forecaster(args.window, args.horizon).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Windows(args.window, args.horizon), batch_size=8, shuffle=True)
    for _ in range(3):
        for past, future in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.l1_loss(model(past.to(device)), future.to(device))
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
