"""Train a fully connected network on generated images of MNIST or CIFAR shape, with NumPy alone."""

# ruff: noqa: E402  (imports are part of the start-up that is measured)

import time

STARTED = time.perf_counter()

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

FEATURES = {"mnist": 28 * 28 * 1, "cifar": 32 * 32 * 3}
CLASSES = 10
HELD_OUT = 500
LEARNING_RATE = 0.005
MOMENTUM = 0.9


@dataclass(frozen=True)
class Images:
    """Flattened images, one a row, and the class of each."""

    pixels: Floats
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


def generate_images(count: int, prototypes: Floats, rng: np.random.Generator) -> Images:
    """A prototype for each class under noise; one label in ten is drawn anew, as real labels err."""
    labels = rng.integers(CLASSES, size=count)
    pixels = rng.standard_normal((count, prototypes.shape[1]), dtype=np.float32)
    for row, label in zip(pixels, labels, strict=True):
        row += prototypes[label]
    return Images(pixels, np.where(rng.random(count) < 0.1, rng.integers(CLASSES, size=count), labels))


class Network:
    """Fully connected layers with ReLU between them, trained by gradient descent with momentum."""

    def __init__(self, widths: Sequence[int], rng: np.random.Generator) -> None:
        shapes = list(pairwise(widths))
        self.weights = [
            rng.standard_normal(shape, dtype=np.float32) * np.float32((2 / shape[0]) ** 0.5) for shape in shapes
        ]
        self.biases = [np.zeros(shape[1], dtype=np.float32) for shape in shapes]
        self.parameters = self.weights + self.biases
        self.gradients = [np.zeros_like(parameter) for parameter in self.parameters]
        self.velocities = [np.zeros_like(parameter) for parameter in self.parameters]

    def forward(self, pixels: Floats) -> list[Floats]:
        """The input of every layer, and the scores of the last."""
        values = [pixels]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            values.append(np.maximum(values[-1] @ weight + bias, 0))
        values.append(values[-1] @ self.weights[-1] + self.biases[-1])
        return values

    def backward(self, values: Sequence[Floats], error: Floats) -> None:
        """Leave the gradients of the loss, given its gradient by the scores."""
        depth = len(self.weights)
        for layer in reversed(range(depth)):
            np.matmul(values[layer].T, error, out=self.gradients[layer])
            np.sum(error, axis=0, out=self.gradients[depth + layer])
            if layer:
                error = (error @ self.weights[layer].T) * (values[layer] > 0)

    def step(self, batch: Images) -> float:
        """Improve the network by one batch; its mean loss before."""
        values = self.forward(batch.pixels)
        probabilities = softmax(values[-1])
        rows = np.arange(len(batch))
        loss = -np.log(probabilities[rows, batch.labels] + 1e-12).mean()
        probabilities[rows, batch.labels] -= 1
        self.backward(values, probabilities / np.float32(len(batch)))
        for parameter, velocity, gradient in zip(self.parameters, self.velocities, self.gradients, strict=True):
            velocity *= MOMENTUM
            gradient *= LEARNING_RATE
            velocity -= gradient
            parameter += velocity
        return float(loss)


def softmax(scores: Floats) -> Floats:
    exponentials: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def train_epoch(network: Network, images: Images, *, batch_size: int, rng: np.random.Generator) -> float:
    """Show every image once, in random order; the mean loss of the batches."""
    order = rng.permutation(len(images))
    batches = [order[first : first + batch_size] for first in range(0, len(images), batch_size)]
    return float(np.mean([network.step(Images(images.pixels[rows], images.labels[rows])) for rows in batches]))


def measure_accuracy(network: Network, images: Images) -> float:
    return float((network.forward(images.pixels)[-1].argmax(axis=1) == images.labels).mean())


def main() -> None:
    options = parse_options()
    rng = np.random.default_rng(options.seed)
    features = FEATURES[options.dataset]
    prototypes = 0.15 * rng.standard_normal((CLASSES, features), dtype=np.float32)
    images = generate_images(options.samples, prototypes, rng)
    held_out = generate_images(HELD_OUT, prototypes, rng)
    network = Network([features, *[options.hidden] * options.layers, CLASSES], rng)
    startup_s = time.perf_counter() - STARTED
    print(f"startup: {startup_s:.4f} s", flush=True)

    epochs_s = []
    for epoch in range(1, options.epochs + 1):
        epoch_started = time.perf_counter()
        loss = train_epoch(network, images, batch_size=options.batch_size, rng=rng)
        epochs_s.append(time.perf_counter() - epoch_started)
        print(f"epoch {epoch}: {epochs_s[-1]:.4f} s loss {loss:.4f}", flush=True)

    accuracy = measure_accuracy(network, held_out)
    print(f"accuracy: {accuracy:.3f}")
    phases = {"startup": startup_s, "epoch": sum(epochs_s) / len(epochs_s), "accuracy": accuracy}
    Path("phases.json").write_text(json.dumps(phases, indent=2) + "\n")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dataset", choices=sorted(FEATURES), default="mnist", help="the shape of the images")
    parser.add_argument("--samples", type=_positive, default=2000, help="images to train on")
    parser.add_argument("--hidden", type=_positive, default=128, help="units in each hidden layer")
    parser.add_argument("--layers", type=_positive, default=2, help="hidden layers")
    parser.add_argument("--batch-size", type=_positive, default=64, help="images in each step")
    parser.add_argument("--epochs", type=_positive, default=2, help="passes over the images")
    parser.add_argument("--seed", type=_natural, default=0, help="start of the random numbers")
    options = parser.parse_args()
    if options.batch_size > options.samples:
        parser.error(f"--batch-size {options.batch_size} is larger than --samples {options.samples}; make it smaller")
    return options


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return int(text)


def _positive(text: str) -> int:
    number = _natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 is too small; give at least 1")
    return number


if __name__ == "__main__":
    main()
