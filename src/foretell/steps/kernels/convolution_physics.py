"""Convolutions by the figures of the call and of the device: the shortest time of the algorithms that libraries use."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.kernel_calls import Convolution, keep_last
from foretell.steps.kernels.sustained_peaks import find_sustained

LAUNCH_S = 3.0e-6
DIRECTIONS = ("forward", "data", "weights")
CLASSES = ("dense", "grouped", "depthwise")
_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}
# Of the description: images, channels, groups, size, stride, direction, positions out and in, units, and two times.
GROUP_COLUMNS = (0, 1, 3, 4, 7, 8, 13, 14, 15, 17, 18)
# Tiles of implicit matrix products, and the share of the peak that a full one reaches outside and inside matrix units.
_TILES = ((256, 128, 0.9, 0.95), (128, 128, 0.85, 0.92), (128, 64, 0.8, 0.85), (64, 64, 0.7, 0.7), (128, 32, 0.65, 0.6),
          (64, 32, 0.55, 0.5))  # fmt: skip
_SPLITS = (1, 2, 4, 8, 16, 32, 64)  # of the inner dimension, for gradients of weights
_MEMORY = 0.8  # of the bandwidth that makers publish
_WINOGRAD_GAIN = 2.25  # fewer multiplications of F(2x2, 3x3)
_WINOGRAD_REACHED = 0.75
_DEPTHWISE = (0.06, 0.05, 0.02)  # share of the peak by direction: each thread adds up one output
_WIDER = 8.0  # matrix units read so many channels at once
_BOOST = 1.2  # clocks above those that makers publish
_COPIED_POINTWISE = 0.5  # windows of 1 x 1: newer versions of cuDNN copy, older ones do not
_EACH_GROUP_S = 8e-6  # where groups run one after the other


class ConvolutionFigures:
    """Figures of convolutions on a device, a column each."""

    def __init__(self, calls: Sequence[Convolution], device: Device) -> None:
        self.device = device
        self.images, channels, filters, self.groups, *sizes, self.stride, direction, self.last = _stack(calls)
        self.high_in, self.wide_in, self.high_out, self.wide_out, self.high, self.wide = sizes
        self.direction = direction.astype(int)
        self.channels, self.filters = channels / self.groups, filters / self.groups  # of one group
        types = {name: find_type(name, device) for name in {call.precision for call in calls}}
        self.precision = [types[call.precision] for call in calls]
        self.item = np.array([_BYTES[name] for name in self.precision])
        peaks = {
            name: (device.find_peak(name) or device.peak_flops) * find_sustained(device, name)
            for name in types.values()
        }
        self.peak = np.array([peaks[name] for name in self.precision])
        self.plain_peak = device.peak_flops * find_sustained(device)
        matrix = {name: has_matrix_units(name, device) for name in types.values()}
        self.matrix = np.array([matrix[name] for name in self.precision])
        self.depthwise = (self.groups > 1) & (self.channels == 1)
        self.grouped = (self.groups > 1) & ~self.depthwise
        self._count()

    def _count(self) -> None:
        """Sizes of the implicit product of each direction, operations and bytes."""
        outputs = self.images * self.high_out * self.wide_out
        inputs = self.images * self.high_in * self.wide_in
        window = self.high * self.wide
        self.rows = np.choose(self.direction, [outputs, inputs, self.channels * window])
        self.columns = np.choose(self.direction, [self.filters, self.channels, self.filters])
        # A gradient of the input meets the strides of the convolution at few of its positions.
        strided = np.maximum(self.filters * window / self.stride**2 * np.where(self.stride > 1, 1.25, 1.0), 1.0)
        self.inner = np.choose(self.direction, [self.channels * window, strided, outputs])
        self.flops = 2 * outputs * self.filters * self.channels * window * self.groups
        self.size_in, self.size_out = inputs * self.channels * self.groups, outputs * self.filters * self.groups
        self.size_weights = self.filters * self.channels * window * self.groups
        self.moved = (self.size_in + self.size_out + self.size_weights) * self.item

    @property
    def classes(self) -> NDArray[np.intp]:
        """0 dense, 1 grouped, 2 depthwise."""
        return np.where(self.depthwise, 2, np.where(self.grouped, 1, 0))

    @property
    def in_turn(self) -> NDArray[np.bool_]:
        """Groups that run one after the other: cuDNN has kernels for all groups at once in matrix units only."""
        return np.asarray(self.grouped & ~self.matrix)

    def name_limits(self) -> list[str]:
        """What limits each convolution: ``units`` that have no work, ``memory`` or ``operations``."""
        tiles = np.ceil(self.rows / 128) * np.ceil(self.columns / 64) * np.where(self.in_turn, 1.0, self.groups)
        bound = self.find_direct() < self.moved / (self.device.bandwidth_bytes * _MEMORY)
        names = np.where(bound, "memory", "operations")
        return [str(name) for name in np.where(tiles < self.device.units, "units", names)]

    def find_seconds(self) -> Floats:
        """The fastest algorithm's time, and that of the copies it needs."""
        streaming = self.moved / (self.device.bandwidth_bytes * _MEMORY)
        fastest = np.minimum(self.find_direct(), np.where(self.fits_winograd, self.find_winograd(), np.inf))
        fastest = np.where(self.depthwise, self._find_depthwise(), fastest)
        groups = np.where(self.in_turn, (self.groups - 1) * _EACH_GROUP_S, 0.0)
        return np.asarray(LAUNCH_S + np.maximum(fastest, streaming) + groups + self.find_copies())

    def find_least(self) -> Floats:
        """What no convolution can go below: its bytes at the bandwidth of L2, its operations at the peak."""
        # Winograd's F(4x4, 3x3) has a quarter of the multiplications; transforms of larger windows have fewer still.
        fewer = np.where(self.matrix | (self.high * self.wide == 1), 1.0, 6.0)
        least = np.maximum(self.flops / self.peak / fewer / _BOOST, self.moved / self.device.bandwidth_bytes / 8)
        return np.asarray(LAUNCH_S / 4 + least)

    def find_direct(self) -> Floats:
        """The product on tiles, in waves over the units; the groups at once, or one after the other."""
        return self._direct_s

    @cached_property
    def _direct_s(self) -> Floats:
        many = np.where(self.in_turn, 1.0, self.groups)
        best = self._time_tiles(slice(None), many, np.ones(1))
        weights = np.flatnonzero(self.direction == DIRECTIONS.index("weights"))
        if len(weights):
            best[weights] = self._time_tiles(weights, many, np.array(_SPLITS, dtype=float))
        return np.asarray(best * np.where(self.in_turn, self.groups, 1.0))

    def _time_tiles(self, some: NDArray[np.intp] | slice, many: Floats, splits: Floats) -> Floats:
        """The shortest time of some convolutions on any tile, with any of these splits of the inner dimension."""
        high, wide, plain, matrix = np.array(_TILES).T[:, :, None, None]
        split, units = splits[:, None], self.device.units
        rows, columns, matrices, many = self.rows[some], self.columns[some], self.matrix[some], many[some]
        inner = np.where(matrices, _pad(self.inner[some], 32.0), _pad(self.inner[some], 8.0))
        reached = np.where(matrices, matrix, plain) * self.peak[some] / units
        tiles = np.ceil(rows / high) * np.ceil(columns / wide) * many
        cost = np.ceil(tiles * split / units) * 2 * high * wide * inner / split / reached
        cost += rows * columns * many * 4 * (split > 1) * (split + 1) / self.device.bandwidth_bytes
        return np.asarray(cost.min(axis=(0, 1)))

    @property
    def fits_winograd(self) -> NDArray[np.bool_]:
        single = np.array([name == "fp32" for name in self.precision])
        return np.asarray((self.high == 3) & (self.wide == 3) & (self.stride == 1) & (self.groups == 1) & single)

    def find_winograd(self) -> Floats:
        """Winograd's algorithm on tiles of outputs, fused or with the transforms apart."""
        fused = self.flops / _WINOGRAD_GAIN
        tiles = self.images * np.ceil(self.high_out / 4) * np.ceil(self.wide_out / 4)
        apart = 2 * 36 * tiles * _pad(self.channels, 32.0) * _pad(self.filters, 32.0)
        moved = 36 * (tiles * (self.channels + self.filters) * 2 + 2 * self.channels * self.filters)
        streamed = moved * self.item / (self.device.bandwidth_bytes * _MEMORY)
        return np.asarray(
            np.minimum(fused, apart) / (self.peak * _WINOGRAD_REACHED) + np.where(apart < fused, streamed, 0)
        )

    def _find_depthwise(self) -> Floats:
        reached = np.choose(self.direction, np.array(_DEPTHWISE)[:, None])
        return np.asarray(self.flops / (self.plain_peak * reached))

    def find_copies(self) -> Floats:
        """Matrix units of half precision want channels last: other layouts are transposed, there and back."""
        copied = self.matrix & (self.item < 4) & (self.last == 0) & ~self.depthwise
        share = np.where(copied, np.where(self.high * self.wide > 1, 1.0, _COPIED_POINTWISE), 0.0)
        moved = 2 * (self.size_in + self.size_out) * self.item
        return np.asarray(share * (moved / (self.device.bandwidth_bytes * _MEMORY) + 2 * LAUNCH_S))

    def describe(self) -> Floats:
        """Columns for a correction: figures of the call relative to those of the device."""
        device, log = self.device, np.log2
        tiles = np.ceil(self.rows / 128) * np.ceil(self.columns / 64)
        waves = tiles * np.where(self.in_turn, 1.0, self.groups) / device.units
        direct, winograd = self.find_direct(), self.find_winograd()
        streaming = self.moved / device.bandwidth_bytes
        one = streaming / np.where(self.in_turn, self.groups, 1.0)
        return np.column_stack(
            [
                log(self.images), log(self.channels), log(self.filters), log(self.groups),
                log(self.high_out * self.wide_out) / 2, log(self.high), log(self.wide), log(self.stride),
                self.direction, self.classes,
                log(self.rows), log(self.columns), log(self.inner),
                log(self.images * self.high_out * self.wide_out), log(self.images * self.high_in * self.wide_in),
                np.where(self.grouped, log(device.units), 0.0), self.high_out % 2,
                log(direct * 1e6), log(one * 1e6), log(direct / streaming),
                log(waves), np.minimum(waves, 4.0), np.where(waves < 8, np.ceil(waves) / waves, 1.0),
                log(_pad(self.columns, 64.0) / self.columns), log(_pad(self.inner, 32.0) / self.inner),
                log(_pad(self.rows, 128.0) / self.rows),
                self.fits_winograd, np.where(self.fits_winograd, log(winograd / direct), 0.0),
                self.channels % 4 == 0, self.wide_out % 2, self.wide_out % 4 == 0,
                np.clip(log(self.moved / (device.l2_bytes or 4 * 2**20)), -10, 10),
                self.high_in * self.wide_in > self.high_out * self.wide_out * self.stride**2,
            ]
        )  # fmt: skip


@keep_last
def _stack(calls: Sequence[Convolution]) -> Floats:
    rows = [
        (
            call.images, call.channels, call.filters, call.groups, *call.size_in, *call.size_out, *call.kernel,
            call.stride, DIRECTIONS.index(call.direction), call.channels_last,
        )
        for call in calls
    ]  # fmt: skip
    return np.asarray(np.maximum(np.array(rows, dtype=float).reshape(-1, 13).T, 0.0))


def _pad(size: Floats, tile: float) -> Floats:
    return np.asarray(np.ceil(size / tile) * tile)


def find_type(precision: str, device: Device) -> str:
    """The type that the device computes in: outside matrix units where it has none for TF32."""
    if precision in ("tf32", "fp32") and "tf32" not in dict(device.matrix_flops):
        return "fp32"
    return precision if precision in _BYTES else "fp32"


def has_matrix_units(precision: str, device: Device) -> bool:
    """Whether the device has units for matrices of this type: half precision alone may be as fast as single."""
    peak = dict(device.matrix_flops).get(precision, 0.0)
    return peak > 0 and (precision not in ("fp16", "fp32") or peak > 1.2 * device.peak_flops)
