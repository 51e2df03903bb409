"""Solve the Gray-Scott reaction-diffusion equations on a periodic square grid, with NumPy alone."""

# ruff: noqa: E402  (imports are part of the start-up that is measured)

import time

STARTED = time.perf_counter()

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float64]

DIFFUSION_U, DIFFUSION_V = 0.16, 0.08
FEED, KILL = 0.0545, 0.062
# Few enough that a band's temporaries stay in the cache, whatever the size of the grid.
BAND_CELLS = 65536


@dataclass(frozen=True)
class Fields:
    """The concentrations of both substances, each with a border that repeats the opposite edge."""

    u: Grid
    v: Grid

    @classmethod
    def start(cls, size: int, *, seed: int) -> "Fields":
        """Substance u everywhere with traces of v, and a square of both in the middle."""
        traces = 0.05 * np.random.default_rng(seed).random((size + 2, size + 2))
        fields = cls(np.ones_like(traces), traces)
        middle = slice(1 + 3 * size // 8, 1 + 5 * size // 8)
        fields.u[middle, middle] = 0.5
        fields.v[middle, middle] += 0.25
        fields.wrap()
        return fields

    def wrap(self) -> None:
        """Copy the edges to the opposite borders."""
        for grid in (self.u, self.v):
            grid[0], grid[-1] = grid[-2], grid[1]
            grid[:, 0], grid[:, -1] = grid[:, -2], grid[:, 1]


def bands(size: int) -> Iterator[slice]:
    """The rows of the grid, cut into bands of about the same number of cells."""
    rows = max(1, BAND_CELLS // size)
    return (slice(first, min(first + rows, size + 1)) for first in range(1, size + 1, rows))


def advance_band(rows: slice, *, now: Fields, then: Fields) -> None:
    """One time step of length 1 for these rows."""
    u, v = now.u[rows, 1:-1], now.v[rows, 1:-1]
    reaction = u * v * v
    then.u[rows, 1:-1] = u + DIFFUSION_U * laplacian(now.u, rows) - reaction + FEED * (1 - u)
    then.v[rows, 1:-1] = v + DIFFUSION_V * laplacian(now.v, rows) + reaction - (FEED + KILL) * v


def laplacian(grid: Grid, rows: slice) -> Grid:
    above, below = grid[rows.start - 1 : rows.stop - 1, 1:-1], grid[rows.start + 1 : rows.stop + 1, 1:-1]
    return above + below + grid[rows, :-2] + grid[rows, 2:] - 4 * grid[rows, 1:-1]


def advance(now: Fields, then: Fields) -> None:
    """Leave in ``then`` what follows ``now``."""
    for rows in bands(len(now.u) - 2):
        advance_band(rows, now=now, then=then)
    then.wrap()


def write_snapshot(fields: Fields, step: int) -> None:
    np.save(Path("snapshots") / f"step-{step:06d}.npy", fields.v[1:-1, 1:-1].astype(np.float32))


def main() -> None:
    options = parse_options()
    Path("snapshots").mkdir(exist_ok=True)
    now = Fields.start(options.size, seed=options.seed)
    then = Fields(np.empty_like(now.u), np.empty_like(now.v))
    startup_s = time.perf_counter() - STARTED

    output_s = 0.0
    loop_started = time.perf_counter()
    for step in range(1, options.steps + 1):
        advance(now, then)
        now, then = then, now
        if step % options.output_every == 0:
            output_started = time.perf_counter()
            write_snapshot(now, step)
            output_s += time.perf_counter() - output_started
    steps_s = time.perf_counter() - loop_started - output_s

    snapshots = options.steps // options.output_every
    phases = {"startup": startup_s, "step": steps_s / options.steps, "output": output_s / snapshots}
    Path("phases.json").write_text(json.dumps(phases, indent=2) + "\n")
    mean_v = now.v[1:-1, 1:-1].mean()
    print(f"{options.steps} steps in {steps_s:.2f} s, {snapshots} snapshots in {output_s:.2f} s, mean v {mean_v:.5f}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", type=_positive, default=256, help="cells along each side of the grid")
    parser.add_argument("--steps", type=_positive, default=200, help="time steps")
    parser.add_argument("--output-every", type=_positive, default=50, help="steps from one snapshot to the next")
    parser.add_argument("--seed", type=_natural, default=0, help="start of the random numbers")
    options = parser.parse_args()
    if options.output_every > options.steps:
        parser.error(
            f"--output-every {options.output_every} is more than --steps {options.steps}: nothing would be kept"
        )
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
