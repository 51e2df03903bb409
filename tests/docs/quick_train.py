"""Stands in for the example's training: the same arguments, the same lines printed, done in a tenth of a second."""

import argparse
import sys
import time

parser = argparse.ArgumentParser()
for name in ("dataset", "samples", "hidden", "batch-size", "epochs"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
images = bytearray(int(given.samples) * (3072 if given.dataset == "cifar" else 784))
epoch_s = int(given.samples) * int(given.hidden) * 2e-9 + 0.001
sys.stdout.write("startup: 0.01 s\n")
for epoch in range(int(given.epochs)):
    time.sleep(epoch_s)
    sys.stdout.write(f"epoch {epoch + 1}: {epoch_s:.6f} s\n")
