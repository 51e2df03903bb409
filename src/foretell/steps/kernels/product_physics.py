"""The time of a matrix product from its tiles: how many there are, what feeds them, how they share the units."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from foretell.core.workload import Floats
from foretell.steps.kernels.device_rates import Rates
from foretell.steps.kernels.physics_parameters import Parameter

# Rows and columns of the tiles of kernels, and into how many parts they split the inner dimension:
# https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
_TILES = np.array(
    [
        *((256, 256), (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64)),
        *((128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (16, 64), (64, 16), (16, 16)),
    ],
    dtype=float,
)
_SPLITS = np.array([1, 2, 3, 4, 8, 16], dtype=float)
_TILE_ROWS = np.repeat(_TILES[:, 0], len(_SPLITS))
_TILE_COLUMNS = np.repeat(_TILES[:, 1], len(_SPLITS))
_PARTS = np.tile(_SPLITS, len(_TILES))
_STEP = 32.0  # the inner dimension is taken in steps of so many
_PARTIAL = 4  # bytes of a partial sum

# Times are in microseconds, of a tile of 128 x 128 where they depend on the tile.
PARAMETERS = (
    Parameter("compute", 0.83, 0.2, 1.3, 0.15),  # share of the peak that is reached
    Parameter("power", 0.1, 0.005, 0.6, 0.5),  # how this share grows with the power that the device has for it
    Parameter("feed", 50.0, 8.0, 300.0, 0.4),  # a square tile of twice this side computes as long as it loads
    Parameter("bandwidth", 0.87, 0.2, 1.2, 0.15),  # share of the memory's bandwidth
    Parameter("launch", 2.4, 0.3, 60.0, 0.5),
    Parameter("tile", 0.56, 0.02, 20.0, 0.7),  # to begin and end one
    Parameter("whole_waves", 0.1, 0.02, 1.0, 1.0),  # share of a last, partial wave that is lost
    Parameter("depth", 1.0, 0.05, 8.0, 0.6),  # latency of a step of the inner dimension, relative to a tile of 64 x 64
    Parameter("split", 2.5, 0.05, 20.0, 0.7),  # to add up the parts
    Parameter("write", 1.3, 0.3, 4.0, 0.3),  # traffic of the output relative to its size
    Parameter("overlap", 2.5, 1.2, 12.0, 0.5),  # of computing and memory: 1 none, infinity perfect
    Parameter("floor", 1.0, 0.1, 100.0, 1.5),  # no kernel is shorter, as where the host is slower
    Parameter("cast", 1.0, 0.05, 8.0, 0.7),  # of inputs to a type that products alone have
)
Theta: TypeAlias = Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSizes:
    """The sizes of several products."""

    rows: Floats
    columns: Floats
    inner: Floats
    many: Floats

    def columnwise(self) -> "ProductSizes":
        """With an axis for the candidates."""
        return ProductSizes(
            rows=self.rows[:, None], columns=self.columns[:, None], inner=self.inner[:, None], many=self.many[:, None]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TileTimes:
    """Each product with its fastest tile."""

    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    waves: Floats  # of tiles over the units of the device
    tile_rows: Floats
    tile_columns: Floats
    parts: Floats
    useful: Floats  # share of the tiles that is not padding
    read_bytes: Floats
    write_bytes: Floats


def time_tiles(sizes: ProductSizes, rates: Rates, theta: Theta) -> TileTimes:
    """The times of products on a device with these parameters (logarithms of those in PARAMETERS)."""
    given = dict(zip((one.name for one in PARAMETERS), np.exp(theta), strict=True))
    wide = sizes.columnwise()
    tiles = wide.many * np.ceil(wide.rows / _TILE_ROWS) * np.ceil(wide.columns / _TILE_COLUMNS)
    compute = _time_compute(wide, tiles, rates, given)
    read, write = _count_traffic(wide, tiles, rates)
    memory = (read + write * given["write"]) / (rates.bandwidth * given["bandwidth"])
    total = _overlap(compute, memory, given["overlap"]) + _time_parts(wide, rates, given)
    best = total.argmin(axis=1)
    rows = np.arange(len(best))
    seconds = total[rows, best] + given["launch"] * 1e-6 + _time_cast(sizes, rates, given)
    return TileTimes(
        seconds=_at_least(seconds, given["floor"] * 1e-6),
        compute_s=compute[rows, best],
        memory_s=np.broadcast_to(memory, total.shape)[rows, best],
        waves=(tiles * _PARTS)[rows, best] / rates.units,
        tile_rows=_TILE_ROWS[best],
        tile_columns=_TILE_COLUMNS[best],
        parts=_PARTS[best],
        useful=(sizes.many * sizes.rows * sizes.columns) / (tiles[rows, best] * _TILE_ROWS[best] * _TILE_COLUMNS[best]),
        read_bytes=rates.item * sizes.many * sizes.inner * (sizes.rows + sizes.columns),
        write_bytes=write[:, 0],
    )


def _time_compute(wide: ProductSizes, tiles: Floats, rates: Rates, given: dict[str, float]) -> Floats:
    unit = rates.reach(given["compute"], given["power"])
    depth = np.ceil(wide.inner / _PARTS / _STEP) * _STEP
    tile = depth * np.maximum(2 * _TILE_ROWS * _TILE_COLUMNS, (_TILE_ROWS + _TILE_COLUMNS) * given["feed"]) / unit
    ends = given["tile"] * 1e-6 * np.sqrt(_TILE_ROWS * _TILE_COLUMNS / (128 * 128))
    waves = tiles * _PARTS / rates.units
    taken = np.where(waves > 1, waves + given["whole_waves"] * (np.ceil(waves) - waves), 1.0)
    return np.asarray(taken * (tile + ends) + depth * given["depth"] * (2 * 64 * 64) / unit)


def _count_traffic(wide: ProductSizes, tiles: Floats, rates: Rates) -> tuple[Floats, Floats]:
    """Bytes read and written. Inputs larger than the cache are read once for each wave of tiles."""
    inputs = rates.item * wide.inner * (wide.rows + wide.columns)
    side = np.sqrt(np.minimum(tiles, rates.units))
    block = np.minimum(side * _TILE_ROWS, wide.rows) + np.minimum(rates.units / side * _TILE_COLUMNS, wide.columns)
    again = np.maximum(tiles / rates.units, 1) * block * wide.inner * rates.item
    beyond = np.clip(inputs / rates.l2_bytes - 0.5, 0, 1)
    once = wide.many * inputs
    read = once + beyond * np.clip(again - once, 0, 9 * once)
    return read, wide.many * wide.rows * wide.columns * rates.item_out


def _time_parts(wide: ProductSizes, rates: Rates, given: dict[str, float]) -> Floats:
    moved = (_PARTS + 1) * wide.many * wide.rows * wide.columns * _PARTIAL
    taken = given["split"] * 1e-6 + moved / (2 * rates.bandwidth)  # partly within the cache
    return np.where(_PARTS > 1, taken, 0.0)


def _time_cast(sizes: ProductSizes, rates: Rates, given: dict[str, float]) -> Floats | float:
    if not rates.cast:
        return 0.0
    moved = sizes.many * sizes.rows * sizes.inner * (2 + rates.item)
    return given["cast"] * (1e-6 + moved / (rates.bandwidth * given["bandwidth"]))


def _overlap(first: Floats, second: Floats, power: float) -> Floats:
    most, least = np.maximum(first, second), np.minimum(first, second)
    return np.asarray(most * (1 + (least / most) ** power) ** (1 / power))


def _at_least(seconds: Floats, floor: float) -> Floats:
    return np.asarray((seconds**8 + floor**8) ** (1 / 8))
