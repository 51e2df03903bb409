"""The time of fused attention from its tiles of queries, each of which goes through the keys."""

from dataclasses import dataclass

import numpy as np

from foretell.core.workload import Floats
from foretell.steps.kernels.device_rates import Rates
from foretell.steps.kernels.physics_parameters import Parameter

_TILE_ROWS = np.repeat([256.0, 128.0, 64.0, 16.0], 6)  # queries of all heads that share a key
_PARTS = np.tile([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 4)  # of the keys, added up afterwards
_EXPONENTIALS = (
    16  # a cycle of a unit: https://docs.nvidia.com/cuda/cuda-c-programming-guide, "Arithmetic Instructions"
)
_BLOCK = 64.0  # keys taken at once
_PARTIAL = 4  # bytes of a partial result

# Times are in microseconds.
PARAMETERS = (
    Parameter("compute", 0.7, 0.1, 1.3, 0.2),  # share of the peak that is reached
    Parameter("power", 0.1, 0.005, 0.6, 0.5),  # how this share grows with the power that the device has for it
    Parameter("exponentials", 0.4, 0.02, 4.0, 0.5),  # share of their time that products do not hide
    Parameter("bandwidth", 0.75, 0.1, 1.2, 0.2),
    Parameter("launch", 5.0, 0.3, 60.0, 0.5),
    Parameter("tile", 1.0, 0.02, 20.0, 0.7),  # to begin and end one
    Parameter("whole_waves", 0.3, 0.02, 1.0, 1.0),  # share of a last, partial wave that is lost
    Parameter("block", 0.2, 0.005, 4.0, 0.6),  # latency of a block of keys
    Parameter("split", 3.0, 0.05, 30.0, 0.7),
    Parameter("overlap", 2.5, 1.2, 12.0, 0.5),
    Parameter("floor", 2.0, 0.1, 150.0, 1.5),
)

# The backward pass computes five products instead of two, at about five sixths of the rate:
# FlashAttention-2 and -3, https://arxiv.org/abs/2307.08691 and https://arxiv.org/abs/2407.08608, figures 4 to 6.
_BACKWARD_FLOPS = 2.5
_BACKWARD_RATE = 0.83
_BACKWARD_BYTES = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """The sizes of several attentions."""

    batch: Floats
    heads: Floats
    shared: Floats  # heads for each key head
    queries: Floats
    keys: Floats
    width: Floats
    causal: Floats  # 0 or 1
    backward: Floats

    @property
    def keys_seen(self) -> Floats:
        """Keys of a query, on average."""
        hidden = np.minimum(self.queries, self.keys)
        return np.asarray(self.keys - self.causal * (hidden - 1) * hidden / self.queries / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTimes:
    """Each attention with its fastest tile."""

    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    waves: Floats
    tile_rows: Floats
    parts: Floats
    moved_bytes: Floats


def time_attention(sizes: AttentionSizes, rates: Rates, theta: Floats) -> AttentionTimes:
    """The times of attentions on a device with these parameters (logarithms of those in PARAMETERS)."""
    given = dict(zip((one.name for one in PARAMETERS), np.exp(theta), strict=True))
    rows = (sizes.queries * sizes.shared)[:, None]
    tiles = (sizes.batch * sizes.heads / sizes.shared)[:, None] * np.ceil(rows / _TILE_ROWS) * _PARTS
    waves = tiles / rates.units
    compute = _time_compute(sizes, waves, rates, given)
    moved = _count_bytes(sizes, rates)
    memory = (moved / (rates.bandwidth * given["bandwidth"]))[:, None]
    most, least = np.maximum(compute, memory), np.minimum(compute, memory)
    total = most * (1 + (least / most) ** given["overlap"]) ** (1 / given["overlap"]) + _time_parts(sizes, rates, given)
    best = total.argmin(axis=1)
    each = np.arange(len(best))
    seconds = total[each, best] + given["launch"] * 1e-6
    return AttentionTimes(
        seconds=np.asarray((seconds**8 + (given["floor"] * 1e-6) ** 8) ** (1 / 8)),
        compute_s=compute[each, best],
        memory_s=memory[:, 0],
        waves=waves[each, best],
        tile_rows=_TILE_ROWS[best],
        parts=_PARTS[best],
        moved_bytes=moved,
    )


def _time_compute(sizes: AttentionSizes, waves: Floats, rates: Rates, given: dict[str, float]) -> Floats:
    """Tiles that see fewer keys leave their unit to others, but the longest has to end."""
    width, slower = sizes.width[:, None], 1 + sizes.backward[:, None] * (_BACKWARD_FLOPS / _BACKWARD_RATE - 1)
    pair = 4 * width / rates.reach(given["compute"], given["power"])
    pair = (pair + given["exponentials"] / (_EXPONENTIALS * rates.clock_hz)) * slower
    seen, longest = (keys[:, None] / _PARTS for keys in (sizes.keys_seen, sizes.keys))
    ends, step = given["tile"] * 1e-6, given["block"] * 1e-6 / _BLOCK
    taken = waves + given["whole_waves"] * (np.ceil(waves) - waves)
    together, alone = taken * (_TILE_ROWS * pair * seen + ends), _TILE_ROWS * pair * longest + ends
    return np.asarray(np.maximum(together, alone) + longest * step)


def _count_bytes(sizes: AttentionSizes, rates: Rates) -> Floats:
    queries = 2 * sizes.batch * sizes.heads * sizes.queries * sizes.width
    keys = 2 * sizes.batch * sizes.heads / sizes.shared * sizes.keys * sizes.width
    return rates.item * (queries + keys) * (1 + sizes.backward * (_BACKWARD_BYTES - 1))


def _time_parts(sizes: AttentionSizes, rates: Rates, given: dict[str, float]) -> Floats:
    results = (sizes.batch * sizes.heads * sizes.queries * sizes.width)[:, None]
    taken = given["split"] * 1e-6 + (_PARTS + 1) * results * _PARTIAL / (2 * rates.bandwidth)
    return np.where(_PARTS > 1, taken, 0.0)
