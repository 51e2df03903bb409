"""Finds the cycle of a resource over time: its bursts and idle times, or none.

A series is split into bursts and idle times by 2-means, as Driple does; segments shorter than a least duration are
merged into their neighbours. A cycle must pass three tests. Its period is where the differences of the series are most
autocorrelated, and more than in series without a cycle: the values shuffled, a random walk of the shuffled steps, and
noise with the same autocorrelation at lag 1. Most bursts must begin one period apart. And the two levels must differ.

Durations are those of one period: all bursts of an iteration added (gradients sent in buckets are one burst without the
pauses), and all idle times. Edges lie inside samples, whose value is then between the two levels; so durations come
from areas: the share of bursts is the one that gives the mean rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.observation import Cycle, CycleSearch, Series
from foretell.core.workload import Floats

Flags: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]

_BLOCKS, _BLOCK = 5, 40  # surrogate series of each kind; a cycle must score above all of them
_LEAST_CYCLES = 4
_LEAST_LAG = 3  # samples; shorter periods look like their multiples
_LARGEST_LAG = 24  # in widths of smoothing, as the least
_LEAST_SAMPLES = 2 * _LEAST_CYCLES * _LEAST_LAG
_MOST_SAMPLES = 8192  # to test: of a longer series the middle, then all of it at a lower resolution
_STARTS = (0.0, 0.25, 0.5)  # shares of a series to skip: the start of a job is often not cyclic
_TOLERANCE = 0.2  # of the period, by which a cycle may deviate
_UNUSUAL = 0.4  # as a logarithm: iterations that differ more from the median were disturbed
_LEAST_EXPLAINED = 0.8
_LEAST_SEGMENT = 2.0  # samples; of a shorter one, only the area is known
_LEAST_COVER = 0.6  # of the time between first and last burst, in whole cycles
_FINE = 0.1  # of a sample: with a coarser grain, series are smoothed first
_BEAT = 1.25  # grains between the levels, for each unit that is used
_LEAST_RELATIVE_STEP = 0.05  # from level to level, of the larger
_SHORT_SEGMENT = 0.25  # of the median segment: shorter ones are noise
_LEAST_KNOWN = 0.3  # of bursts that must contain a whole sample, to use only these for the level
_NEARLY = 0.9  # of the maximum
_WIDTHS = np.arange(0.2, 6.0, 0.05)  # of short segments, in samples
_PHASES = 12  # of a sample, at which short segments are tried
_LEAST_NOISE = 0.02  # of the height, the resolution of widths and phases


def search_cycle(series: Series, *, least_s: float = 0.0, grain_s: float = 0.0, seed: int = 0) -> CycleSearch:
    """The cycle of a series with its bursts, or why it has none. The same seed gives the same result.

    Bursts and idle times shorter than ``least_s`` are taken for noise.
    ``grain_s`` is the delay with which usage is counted at most; such counts have a beat of their own.
    """
    if len(series.values) < _LEAST_SAMPLES:
        return CycleSearch(cycle=None, why=_too_few(len(series.values)))
    if not np.ptp(series.values) > 1e-9 * np.abs(series.values).max():
        return CycleSearch(cycle=None, why="it is constant" if series.values.any() else "nothing was used")
    first = None
    for fraction in _STARTS:
        skipped = int(fraction * len(series.values))
        later = Series(times_s=series.times_s[skipped:], values=series.values[skipped:])
        found = _search(later, least_s=least_s, grain_s=grain_s, seed=seed)
        if found.cycle is not None:
            return found
        first = first or found
    assert first is not None
    return first


def measure_cycle(series: Series, begins_s: Floats, *, least_s: float = 0.0) -> Cycle | None:
    """The cycle of iterations whose begins, and the last end, are known; disturbed iterations are left out.

    ``None`` if most have no burst, if bursts or idle times are too short for the samples, or without two levels:
    2-means splits noise as well, but explains less of its variance.
    """
    lengths = np.diff(begins_s)
    usual = np.abs(np.log(lengths / np.median(lengths))) < _UNUSUAL
    places = np.searchsorted(begins_s, series.times_s, side="right") - 1
    within = (places[1:] < len(usual)) & (places[:-1] >= 0)
    between = within & usual[np.clip(places[:-1], 0, len(usual) - 1)]
    if not between.any() or not np.ptp(series.values[between]) > 0:
        return None
    steps = np.diff(series.times_s)
    step_s = float(np.median(steps))
    threshold = _find_threshold(series.values[between])
    busy = _clean(series.values > threshold, least=least_s / step_s)
    shape = _measure(series.times_s / step_s, series.values, busy, between)
    if shape is None or _explain(series.values[between], threshold) < _LEAST_EXPLAINED:
        return None
    starts, ends = _find_bursts(busy)
    middles = (starts + ends) // 2  # the first burst may seem to begin in the iteration before
    if len(np.unique(places[middles[between[middles]]])) < _LEAST_COVER * usual.sum():
        return None
    period_s = float(lengths[usual].mean())
    if not _LEAST_SEGMENT * step_s <= shape.share * period_s <= period_s - _LEAST_SEGMENT * step_s:
        return None
    return Cycle(
        burst_s=shape.share * period_s,
        idle_s=(1 - shape.share) * period_s,
        burst_amount=shape.high,
        idle_amount=shape.low,
        period_s=period_s,
        bursts=int(between[starts].sum()),
        chance=0.0,
    )


def _explain(values: Floats, threshold: float) -> float:
    """The share of variance that two levels explain; 0.64 of normal noise, 0.75 of uniform noise."""
    upper = values > threshold
    inside = values[upper].var() * upper.mean() + values[~upper].var() * (~upper).mean()
    return float(1 - inside / values.var())


def _too_few(samples: int) -> str:
    taken = "only 1 sample was taken" if samples == 1 else f"only {samples} samples were taken"
    return f"{taken}; {_LEAST_SAMPLES} are needed"


def _search(series: Series, *, least_s: float, grain_s: float, seed: int) -> CycleSearch:
    values, step_s = series.values, float(np.median(np.diff(series.times_s)))
    times = (series.times_s - series.times_s[0]) / step_s  # in samples
    if len(values) < _LEAST_SAMPLES:
        return CycleSearch(cycle=None, why=_too_few(len(values)))
    smooth = _smooth(values) if grain_s > _FINE * step_s else values
    lag = _find_lag(_resample(times, smooth), seed=seed)
    if lag is None:
        return CycleSearch(cycle=None, why="it is no more periodic than noise")
    threshold = _find_threshold(smooth)
    busy = _clean(smooth > threshold, least=least_s / step_s)
    starts, ends = _find_bursts(busy)
    edges = _refine(times, smooth, starts, threshold=threshold)
    cycles = _chain(edges, lag)
    if len(cycles) < _LEAST_CYCLES:
        return CycleSearch(cycle=None, why=f"it has {len(cycles)} whole cycles; {_LEAST_CYCLES} are needed")
    lengths = np.array([edges[end] - edges[begin] for begin, end in cycles])
    if lengths.sum() < _LEAST_COVER * (edges[-1] - edges[0]):
        return CycleSearch(cycle=None, why="bursts do not begin at regular times")
    inside = np.zeros(len(values), dtype=bool)
    for begin, end in cycles:
        inside[starts[begin] : starts[end]] = True
    shape = _measure(times, values, busy, inside)
    if shape is None or shape.high - shape.low < _LEAST_RELATIVE_STEP * abs(shape.high):
        return CycleSearch(cycle=None, why="its two levels hardly differ")
    if _is_beat(values[inside & busy], values[inside & ~busy], grain_s / step_s):
        return CycleSearch(cycle=None, why="its changes are no larger than the resolution of the counter")
    period_s = float(lengths.mean()) * step_s
    cycle = Cycle(
        burst_s=shape.share * period_s,
        idle_s=(1 - shape.share) * period_s,
        burst_amount=shape.high,
        idle_amount=shape.low,
        period_s=period_s,
        bursts=sum(end - begin for begin, end in cycles),
        chance=1 / (1 + _BLOCKS * _BLOCK),
    )
    spans = zip(series.times_s[starts], series.times_s[ends], strict=True)
    return CycleSearch(cycle=cycle, bursts=tuple((float(begin), float(end)) for begin, end in spans))


def _smooth(values: Floats) -> Floats:
    """Without alternation from sample to sample: what one counts late, the next one counts."""
    padded = np.concatenate((values[:1], values, values[-1:]))
    return np.asarray((padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4)


def _is_beat(upper: Floats, lower: Floats, grain: float) -> bool:
    """Whether constant usage, counted up to a grain late, would look like that."""
    high, low = float(np.median(upper)), float(np.median(lower))
    return low >= grain and high - low <= _BEAT * grain * max(1.0, high)


def _resample(times: Floats, values: Floats) -> Floats:
    """Mean rates on an even grid; totals are exact at the ends of samples."""
    used = np.concatenate(([0.0], np.cumsum(values * np.diff(times))))
    return np.diff(np.interp(np.arange(int(times[-1] + 1e-6) + 1), times, used))


def _find_lag(values: Floats, *, seed: int) -> int | None:
    """The period in samples, if the series is more periodic than all surrogates."""
    if len(values) <= _MOST_SAMPLES:
        return _test_lag(values, seed=seed)
    spare, coarse = (len(values) - _MOST_SAMPLES) // 2, -(-len(values) // _MOST_SAMPLES)
    near = _test_lag(values[spare : spare + _MOST_SAMPLES], seed=seed)
    if near is not None:
        return near
    far = _test_lag(values[: len(values) // coarse * coarse].reshape(-1, coarse).mean(axis=1), seed=seed)
    return None if far is None else coarse * far


def _test_lag(values: Floats, *, seed: int) -> int | None:
    if not np.ptp(values) > 0:  # a part of a series may be constant
        return None
    repetition = _Repetition.of(np.diff(values)[None, :])
    score = repetition.scores()[0]
    rng = np.random.default_rng(seed)
    if any((_Repetition.of(steps).scores() >= score).any() for steps in _surrogates(values, rng)):
        return None
    return repetition.find_lag()


def _surrogates(values: Floats, rng: np.random.Generator) -> Iterator[Floats]:
    """Differences of series without a cycle: shuffled values, a walk of shuffled steps, autocorrelated noise."""
    shuffled, steps = np.tile(values, (_BLOCK, 1)), np.tile(np.diff(values), (_BLOCK, 1))
    correlation = _autocorrelate(values)
    for _ in range(_BLOCKS):
        yield np.diff(rng.permuted(shuffled, axis=1), axis=1)
        yield rng.permuted(steps, axis=1)
        yield np.diff(_build_noise(rng.standard_normal(shuffled.shape), correlation), axis=1)


def _autocorrelate(values: Floats) -> float:
    centred = values - values.mean()
    return float(np.clip(centred[1:] @ centred[:-1] / (centred @ centred), 0.0, 0.999))


def _build_noise(noise: Floats, correlation: float) -> Floats:
    """First-order autoregressive noise."""
    size = 2 * noise.shape[1]
    response = correlation ** np.arange(noise.shape[1])
    kept = np.fft.irfft(np.fft.rfft(noise, size) * np.fft.rfft(response, size), size)
    return kept[:, : noise.shape[1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Peaks of the autocorrelation at lags of ``first`` samples and more; a row for each series."""

    first: int
    tops: Floats
    noise: float  # about the peaks of noise

    def near(self, lag: int) -> float:
        """The peak of the first series near a lag."""
        place = lag - self.first
        return float(self.tops[0, max(place - 2, 0) : place + 3].max(initial=0.0)) if place >= 0 else 0.0

    def shortest(self, least: float) -> int | None:
        """The shortest lag at which the first series has such a peak."""
        places = np.flatnonzero(self.tops[0] >= least)
        return self.first + int(places[0]) if len(places) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repetition:
    """Autocorrelation of differences smoothed at several scales, each at lags in proportion to its width.

    Differences, because those of a random walk are noise; smoothed, because jitter then matters less.
    """

    scales: tuple[_Scale, ...]

    @classmethod
    def of(cls, steps: Floats) -> "_Repetition":
        length = steps.shape[1]
        longest = length // _LEAST_CYCLES
        size = 1 << (2 * length - 1).bit_length()
        power = np.abs(np.fft.rfft(steps - steps.mean(axis=1, keepdims=True), size)) ** 2
        scales, width = [], 1
        while _LEAST_LAG * width <= longest:
            # a box filter applied twice to both factors: differences of means
            smooth = _box(np.arange(size // 2 + 1) / size, width) ** 4
            covariance = np.fft.irfft(power * smooth, size)[:, : longest + 2]
            correlation = covariance / np.maximum(covariance[:, :1], 1e-300)
            at = np.arange(_LEAST_LAG * width, min(_LARGEST_LAG * width, longest) + 1)
            tops = (correlation[:, at] >= correlation[:, at - 1]) & (correlation[:, at] >= correlation[:, at + 1])
            noise = float(np.sqrt(width / length))
            scales.append(_Scale(first=int(at[0]), tops=np.where(tops, correlation[:, at], 0.0), noise=noise))
            width *= 2
        return cls(scales=tuple(scales))

    def scores(self) -> Floats:
        """The highest peak of each series, relative to noise."""
        return np.asarray(np.max([scale.tops.max(axis=1) / scale.noise for scale in self.scales], axis=0))

    def find_lag(self) -> int | None:
        """The shortest lag of the first series with nearly its highest peak."""
        tops = [float(scale.tops[0].max()) for scale in self.scales]
        best = int(np.argmax(tops))
        lag = self.scales[best].shortest(_NEARLY * tops[best])
        for scale in self.scales[best::-1]:  # a finer scale may have a shorter lag that is as good
            peak = 0.0 if lag is None else scale.near(lag)
            lag = (scale.shortest(_NEARLY * peak) or lag) if peak > 0 else lag
        return lag


def _box(turns: Floats, width: int) -> Floats:
    with np.errstate(invalid="ignore"):
        box = np.abs(np.sin(np.pi * turns * width) / (width * np.sin(np.pi * turns)))
    box[0] = 1.0
    return np.asarray(box)


def _find_threshold(values: Floats) -> float:
    """The middle of the two means of an exact 2-means clustering."""
    ordered = np.sort(values)
    below = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)
    lower = sums[:-1] / below
    upper = (sums[-1] - sums[:-1]) / (len(ordered) - below)
    best = int(np.argmax(below * lower**2 + (len(ordered) - below) * upper**2))
    return float(lower[best] + upper[best]) / 2


def _clean(busy: Flags, *, least: float) -> Flags:
    """Without segments much shorter than the median or than the least: merged into neighbours, shortest first."""
    median = min(_find_median_segment(busy, kind=True), _find_median_segment(busy, kind=False))
    limit = max(least, _SHORT_SEGMENT * median)
    busy = busy.copy()
    for length in range(1, min(int(np.ceil(limit)), len(busy) + 1)):
        begins, ends = _find_segments(busy)
        short = (ends - begins == length) & (begins > 0) & (ends < len(busy))
        for begin, end in zip(begins[short], ends[short], strict=True):
            if busy[begin - 1] != busy[begin]:  # no neighbour was merged just now
                busy[begin:end] = ~busy[begin:end]
    return busy


def _find_median_segment(busy: Flags, *, kind: bool) -> float:
    """The length of the segment that contains the median sample of a kind."""
    begins, ends = _find_segments(busy)
    lengths = (ends - begins)[busy[begins] == kind]
    return float(np.median(np.repeat(lengths, lengths))) if len(lengths) else 0.0


def _find_segments(busy: Flags) -> tuple[Places, Places]:
    turns = np.flatnonzero(busy[1:] != busy[:-1]) + 1
    return np.concatenate(([0], turns)), np.concatenate((turns, [len(busy)]))


def _find_bursts(busy: Flags) -> tuple[Places, Places]:
    """Where bursts begin and end, without one that began before the first sample."""
    begins, ends = _find_segments(busy)
    whole = busy[begins] & (begins > 0)
    return begins[whole], ends[whole]


def _refine(times: Floats, values: Floats, starts: Places, *, threshold: float) -> Floats:
    """Where, between the middles of two samples, the series rises through the threshold."""
    middles = (times[1:] + times[:-1]) / 2
    before, after = values[starts - 1], values[starts]
    part = np.clip((threshold - before) / np.maximum(after - before, 1e-300), 0.0, 1.0)
    return np.asarray(middles[starts - 1] + part * (middles[starts] - middles[starts - 1]))


def _chain(edges: Floats, lag: int) -> list[tuple[int, int]]:
    """The most whole cycles without overlap, each from a burst to one about a period later."""
    if not len(edges):
        return []
    nearest = np.clip(np.searchsorted(edges, edges + lag), 1, max(len(edges) - 1, 1))
    nearest = np.minimum(nearest, len(edges) - 1)
    earlier = np.abs(edges[nearest - 1] - edges - lag) < np.abs(edges[nearest] - edges - lag)
    follower = np.where(earlier, nearest - 1, nearest)
    outside = np.abs(edges[follower] - edges - lag) > max(_TOLERANCE * lag, 1.0)
    most = np.zeros(len(edges) + 1, dtype=int)
    for place in range(len(edges) - 1, -1, -1):
        through = 0 if outside[place] or follower[place] <= place else 1 + most[follower[place]]
        most[place] = max(through, most[place + 1])
    cycles, place = [], 0
    while most[place]:
        if most[place] == most[place + 1]:
            place += 1
        else:
            cycles.append((place, int(follower[place])))
            place = int(follower[place])
    return cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The two levels of a cycle, and the share of time in the upper one."""

    high: float
    low: float
    share: float


def _measure(times: Floats, values: Floats, busy: Flags, inside: Flags) -> _Shape | None:
    """Levels from whole samples; where segments are too short, the best fit to their edges."""
    bursts, idles = busy & inside, ~busy & inside
    if not bursts.any() or not idles.any():
        return None
    high, low = _level(values, bursts), _level(values, idles)
    if high is None and low is None:
        high, low = float(values[bursts].mean()), float(values[idles].mean())
    elif high is None and low is not None:
        high = low + _fit_height(times, values - low, bursts, noise=_noise(values, idles))
    elif low is None and high is not None:
        low = high - _fit_height(times, high - values, idles, noise=_noise(values, bursts))
        low = max(low, min(float(values[inside].min()), 0.0))  # usage is not negative
    assert high is not None
    assert low is not None
    if not high > low:
        return None
    mean = float(np.average(values[inside], weights=np.diff(times)[inside]))
    return _Shape(high=high, low=low, share=float(np.clip((mean - low) / (high - low), 0.0, 1.0)))


def _level(values: Floats, of: Flags) -> float | None:
    """The mean of samples without an edge; ``None`` if too few segments have any."""
    begins, ends = _find_segments(of)
    lengths = (ends - begins)[of[begins]]
    return float(values[_whole(of)].mean()) if (lengths >= 3).mean() >= _LEAST_KNOWN else None


def _noise(values: Floats, of: Flags) -> float:
    return float(values[_whole(of)].std())


def _whole(of: Flags) -> Flags:
    """Samples whose neighbours are in the same state."""
    whole = np.zeros_like(of)
    whole[1:-1] = of[1:-1] & of[:-2] & of[2:]
    return whole


def _fit_height(times: Floats, excess: Floats, of: Flags, *, noise: float) -> float:
    """The height of segments that are too short for whole samples: the maximum-likelihood width.

    Their area is known, so a width gives a height; the position within the samples is uniformly distributed.
    """
    begins, ends = _find_segments(of)
    lengths = (ends - begins)[of[begins]]
    middles = ((begins + ends) // 2)[of[begins]]
    margin = int(np.median(lengths)) // 2 + 1  # one sample more on either side; the next segment may be near
    middles = middles[(middles >= margin) & (middles < len(excess) - margin)]
    if not len(middles):
        return float(excess[of].mean())
    around = middles[:, None] + np.arange(-margin, margin + 2)
    windows, bounds = excess[around[:, :-1]], times[around] - times[middles, None] - 0.5
    area = float((windows * np.diff(bounds)).sum(axis=1).mean())
    noise = max(noise, _LEAST_NOISE * float(np.abs(windows).max()))
    widths = _WIDTHS[2 * margin >= _WIDTHS]
    likely = [_likelihood(windows, bounds, width=width, height=area / width, noise=noise) for width in widths]
    return area / float(widths[int(np.argmax(likely))])


def _likelihood(windows: Floats, bounds: Floats, *, width: float, height: float, noise: float) -> float:
    """The log-likelihood of these windows for segments of a width and height."""
    places = np.arange(-_PHASES, _PHASES + 1) / _PHASES
    left = np.maximum(bounds[:, None, :-1], places[None, :, None] - width / 2)
    right = np.minimum(bounds[:, None, 1:], places[None, :, None] + width / 2)
    expected = height * np.maximum(right - left, 0.0) / np.diff(bounds)[:, None, :]
    squares = ((windows[:, None, :] - expected) ** 2).sum(axis=2) / (2 * noise**2)
    least = squares.min(axis=1)
    return float((np.log(np.exp(least[:, None] - squares).mean(axis=1)) - least).sum())
