"""Predicts the time of a matrix product on any GPU."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.device_rates import Rates
from foretell.steps.kernels.kernel_calls import Product
from foretell.steps.kernels.law_times import Described, LawTimeModel
from foretell.steps.kernels.physics_parameters import Parameter
from foretell.steps.kernels.product_physics import PARAMETERS, ProductSizes, TileTimes, time_tiles

_ALIGNED = 128  # larger powers of two make no difference
# Rows of an odd number of halves begin between words, and are read number by number. No such product was measured, but
# transformers of odd lengths (timm): in either half of their families a factor of 2 to 3 is closest to the whole steps.
_ODD = 2.5
_HALF = ("fp16", "bf16")


class ProductTimeModel(LawTimeModel[Product]):
    """The tiles of a product over the units of a device; trees see how they fit, not which device it is."""

    kind: ClassVar[str] = "product times"
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    columns: ClassVar[int] = 23
    place_columns: ClassVar[int] = 8

    def predict(self, calls: Sequence[Product], device: Device) -> Floats:
        factors = [_ODD if _is_odd(call) else 1.0 for call in calls]
        return np.asarray(super().predict(calls, device) * np.array(factors))

    def stack(self, calls: Sequence[Product]) -> ProductSizes:
        values = np.array([(call.rows, call.columns, call.inner, call.many) for call in calls], dtype=float)
        rows, columns, inner, many = np.maximum(values.reshape(-1, 4), 1).T
        return ProductSizes(rows=rows, columns=columns, inner=inner, many=many)

    def time(self, sizes: ProductSizes, rates: Rates, theta: Floats) -> TileTimes:
        return time_tiles(sizes, rates, theta)

    def relate(self, sizes: ProductSizes, times: TileTimes, rates: Rates) -> Described:
        return Described(
            seconds=times.seconds,
            features=_build_features(sizes, times, rates),
            places=_build_places(sizes, times),
            least=2 * sizes.rows * sizes.columns * sizes.inner * sizes.many / rates.flops,
        )


def _is_odd(call: Product) -> bool:
    """Whether rows of the inputs or of the result are an odd number of halves; a single column is none."""
    return call.precision in _HALF and any(size > 1 and size % 2 for size in (call.columns, call.inner))


def _build_features(sizes: ProductSizes, times: TileTimes, rates: Rates) -> Floats:
    moved = times.read_bytes + times.write_bytes
    return np.stack(
        [
            np.log(times.compute_s / times.memory_s),
            np.log(times.seconds * 1e6),
            np.log(times.waves),
            times.waves / np.ceil(times.waves),
            *(_fill_last_wave(sizes, rates, tile) for tile in ((128, 128), (128, 256), (256, 128))),
            times.useful,
            np.log(times.tile_rows * times.tile_columns),
            np.log(times.tile_rows / times.tile_columns),
            np.log(times.parts),
            np.log(moved / rates.l2_bytes),
            np.log(times.write_bytes / times.read_bytes),
            np.log(sizes.rows * sizes.columns * sizes.many / (128 * 128 * rates.units)),
            *(np.log(each) for each in (sizes.rows, sizes.columns, sizes.inner, sizes.many)),
            *(_find_alignment(each) for each in (sizes.rows, sizes.columns, sizes.inner)),
            np.full(len(sizes.rows), float(rates.generation)),
            np.full(len(sizes.rows), float(rates.item)),
        ],
        axis=1,
    )


def _build_places(sizes: ProductSizes, times: TileTimes) -> Floats:
    logs = [np.log(each) / 2.5 for each in (sizes.rows, sizes.columns, sizes.inner, sizes.many)]
    balance = np.clip(np.log(times.compute_s / times.memory_s), -3, 3) / 2
    waves = np.log(times.waves)
    return np.stack([*logs, balance, waves / 2, np.minimum(times.waves, 8) / 2, times.useful * 2], axis=1)


def _fill_last_wave(sizes: ProductSizes, rates: Rates, tile: tuple[int, int]) -> Floats:
    waves = np.ceil(sizes.rows / tile[0]) * np.ceil(sizes.columns / tile[1]) * sizes.many / rates.units
    return np.asarray(waves / np.ceil(waves))


def _find_alignment(sizes: Floats) -> Floats:
    """The logarithm of the largest power of two that divides a size."""
    whole = sizes.astype(np.int64)
    return np.asarray(np.log2(np.minimum(whole & -whole, _ALIGNED)))
