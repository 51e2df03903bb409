"""Series over time of which everything is known: cycles with noise and jitter, and series without any cycle."""

from dataclasses import dataclass

import numpy as np

from foretell.core.observation import Series
from foretell.core.workload import Floats

STEP_S = 0.02
_UNEVEN = 0.03  # of a sample: how far samples are taken from when they should be


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A cycle to make: period in samples, share in bursts, noise of the height, jitter of periods."""

    period: float
    duty: float
    noise: float = 0.0
    jitter: float = 0.0
    low: float = 0.1
    high: float = 1.0
    buckets: int = 1  # that a burst comes in, with pauses of a fifth of the idle time between them, all together


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A series with what its periods really are, in samples: their mean, and their burst's."""

    series: Series
    period: float
    burst: float


def make_wave(wave: Wave, rng: np.random.Generator, *, samples: int) -> Truth:
    """A series of a wave, begun anywhere within it."""
    count = int(1.3 * samples / wave.period) + 6
    lengths = wave.period * np.clip(1 + wave.jitter * rng.standard_normal(count), 0.5, 1.5)
    starts = np.concatenate(([0.0], np.cumsum(lengths)))[:-1] - rng.uniform(1, 2) * wave.period
    times = np.arange(samples + 1.0)
    times[1:-1] += _UNEVEN * rng.standard_normal(samples - 1)
    corners, used = _lay(starts, lengths, wave)
    share = np.diff(np.interp(times, corners, used)) / np.diff(times)
    height = wave.high - wave.low
    values = wave.low + height * (share + wave.noise * rng.standard_normal(samples))
    whole = (starts >= 0) & (starts + lengths <= samples)
    mean = float(lengths[whole].mean())
    return Truth(series=Series(times_s=STEP_S * times, values=values), period=mean, burst=wave.duty * mean)


def _lay(starts: Floats, lengths: Floats, wave: Wave) -> tuple[Floats, Floats]:
    """Where bursts begin and end, and the time in bursts until there."""
    parts = np.arange(wave.buckets)
    burst = wave.duty / wave.buckets
    pause = 0.2 * (1 - wave.duty) / max(wave.buckets - 1, 1)
    begins = starts[:, None] + lengths[:, None] * parts * (burst + pause)
    ends = begins + lengths[:, None] * burst
    corners = np.stack((begins, ends), axis=2).ravel()
    return corners, np.cumsum(np.stack((np.zeros_like(begins), ends - begins), axis=2).ravel())


def draw_wave(rng: np.random.Generator, *, least: float = 2.0) -> Wave:
    """Periods of 6 to 100 samples, bursts in 0.1 to 0.9 of them, either at least so many samples long."""
    while True:
        period, duty = 6 * (100 / 6) ** rng.uniform(), rng.uniform(0.1, 0.9)
        if min(duty, 1 - duty) * period >= least:
            return Wave(period=period, duty=duty, noise=rng.uniform(0, 0.2), jitter=rng.uniform(0, 0.04))


def make_without(kind: str, rng: np.random.Generator, *, samples: int) -> Series:
    """A series without any cycle: a shuffled one, a constant one, a random walk, noise with a memory."""
    if kind == "shuffled":
        values = rng.permutation(make_wave(draw_wave(rng), rng, samples=samples).series.values)
    elif kind == "constant":
        values = np.full(samples, 0.7) + rng.choice([0.0, 1e-3, 0.05]) * rng.standard_normal(samples)
    elif kind == "walk":
        values = np.cumsum(rng.standard_normal(samples))
    else:
        values = np.convolve(rng.standard_normal(samples + 200), rng.uniform(0.3, 0.97) ** np.arange(200))[200:-199]
    return Series(times_s=STEP_S * np.arange(samples + 1.0), values=values)
