"""How long a device works on a part of an operator: its roofline, times a factor learned on distinct parts."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import Arrays, ArrayTrees
from foretell.core.devices import Device
from foretell.core.model_checks import read_numbers
from foretell.core.workload import Floats, StepPhase
from foretell.steps.boosted_trees import fit_trees
from foretell.steps.device_tasks import DeviceTask, TaskKind

_LAUNCH_S = 3e-6  # the least time of a kernel
_SHRINK = 4.0  # parts of a kind that weigh as much as what is known of all kinds
_FACTOR = 12.0  # factors beyond exp of it are mistakes, not physics
_PHASES = list(StepPhase)


def roofline(parts: Sequence[DeviceTask], device: Device) -> Floats:
    """The least time a device could need."""
    flops = np.array([part.flops for part in parts])
    moved = np.array([part.bytes_moved for part in parts])
    kernels = np.array([part.kernels for part in parts], dtype=float)
    once = kernels * _LAUNCH_S + np.maximum(flops / device.peak_flops, moved / device.bandwidth_bytes)
    return np.asarray(once * np.array([part.repeats for part in parts]))


class KernelModel:
    """A factor on the roofline for each kind of work, by boosted trees on sizes; kinds have levels of their own."""

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self.seed = seed

    def fit(self, parts: Sequence[DeviceTask], seconds: Floats) -> Self:
        """Learn from distinct parts and how long each took; returns itself."""
        self.trees_: dict[str, ArrayTrees] = {}
        self.levels_: dict[str, float] = {}
        factor = np.log(np.maximum(seconds, 1e-7) / roofline(parts, self.device))
        works = np.array([part.work.value for part in parts])
        for work in TaskKind:
            chosen = np.flatnonzero(works == work.value)
            if len(chosen) < 2:
                continue
            some = [parts[place] for place in chosen.tolist()]
            self._learn_levels(work, some, factor[chosen], np.sqrt(seconds[chosen]))
            rest = factor[chosen] - self._find_levels(some)
            self.trees_[work.value] = fit_trees(
                describe(some, self.device), rest, np.sqrt(seconds[chosen]), seed=self.seed
            )
        return self

    def _learn_levels(self, work: TaskKind, parts: Sequence[DeviceTask], factor: Floats, weights: Floats) -> None:
        common = _middle(factor, weights)
        self.levels_[work.value] = common
        groups: dict[str, list[int]] = {}
        for place, part in enumerate(parts):
            for name in _name_levels(part)[:2]:
                groups.setdefault(name, []).append(place)
        for name in sorted(groups, key=len):  # a phase's level first: kinds lean on it
            size, middle = len(groups[name]), _middle(factor[groups[name]], weights[groups[name]])
            above = self.levels_.get(name.rpartition("/")[0], common)
            self.levels_[name] = (middle * size + above * _SHRINK) / (size + _SHRINK)

    def _find_levels(self, parts: Sequence[DeviceTask]) -> Floats:
        return np.array([next((self.levels_[n] for n in _name_levels(p) if n in self.levels_), 0.0) for p in parts])

    def predict(self, parts: Sequence[DeviceTask]) -> Floats:
        """Seconds of each part."""
        least = roofline(parts, self.device)
        factor = self._find_levels(parts)
        works = np.array([part.work.value for part in parts])
        for work, trees in self.trees_.items():
            chosen = np.flatnonzero(works == work)
            if len(chosen):
                some = [parts[place] for place in chosen.tolist()]
                factor[chosen] += trees.predict(describe(some, self.device))
        return least * np.exp(np.clip(factor, -_FACTOR, _FACTOR))

    def move(self, device: Device) -> "KernelModel":
        """The same factors on another device's roofline."""
        other = KernelModel(device, seed=self.seed)
        other.trees_, other.levels_ = self.trees_, dict(self.levels_)
        return other

    def shift(self, shown: Sequence[tuple[DeviceTask, float, float]]) -> None:
        """Take in by how much parts were off, each as a logarithm with a weight: the coarse levels first."""
        for depth in (2, 1, 0):
            groups: dict[str, list[tuple[float, float]]] = {}
            moved: dict[str, float] = {}
            for part, off, weight in shown:
                groups.setdefault(_name_levels(part)[depth], []).append((off, weight))
            for name, values in groups.items():
                table = np.array(values)
                moved[name] = _middle(table[:, 0], table[:, 1]) * len(values) / (len(values) + _SHRINK)
            for name in self.levels_:
                above = next((moved[one] for one in (name, *_list_above(name)) if one in moved), 0.0)
                self.levels_[name] += above
            shown = [(part, off - moved[_name_levels(part)[depth]], weight) for part, off, weight in shown]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All that was learned but the levels."""
        return {
            f"{work}.{name}": values
            for work, trees in self.trees_.items()
            for name, values in trees.to_arrays().items()
        }

    @classmethod
    def from_arrays(cls, device: Device, arrays: Arrays, levels: Mapping[str, float]) -> Self:
        """The same model again."""
        model = cls(device)
        model.levels_ = read_numbers(levels)
        works = dict.fromkeys(name.partition(".")[0] for name in arrays)
        model.trees_ = {
            work: ArrayTrees.from_arrays(
                {k.partition(".")[2]: v for k, v in arrays.items() if k.startswith(f"{work}.")}
            )
            for work in works
        }
        return model


def _list_above(name: str) -> list[str]:
    """The coarser levels a level belongs to, from the nearest one."""
    parts = name.split("/")
    return ["/".join(parts[:size]) for size in range(len(parts) - 1, 0, -1)]


def _middle(values: Floats, weights: Floats) -> float:
    """The median, by weight: what takes long tells more of a kind than what is all launch."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _name_levels(part: DeviceTask) -> tuple[str, ...]:
    """From the finest to the coarsest: kind in its phase, phase, work."""
    phase = f"{part.work.value}/{part.phase.value}"
    return (f"{phase}/{part.kind}", phase, part.work.value)


def describe(parts: Sequence[DeviceTask], device: Device) -> Floats:
    """Columns for parts of one kind of work."""
    table = np.array([part.sizes for part in parts], dtype=float)
    common = np.column_stack(
        [
            _log([part.flops + 1 for part in parts]),
            _log([part.bytes_moved for part in parts]),
            _log([_balance(part, device) for part in parts]),
            np.array([_PHASES.index(part.phase) for part in parts], dtype=float),
            np.array([part.kernels for part in parts], dtype=float),
            np.array([part.item for part in parts], dtype=float),
            _log([part.repeats for part in parts]),
        ]
    )
    return np.column_stack([common, _DESCRIBERS[parts[0].work](table, device)])


def _balance(part: DeviceTask, device: Device) -> float:
    """How long a part computes for each second that it moves data."""
    return (part.flops + 1) / device.peak_flops / (part.bytes_moved / device.bandwidth_bytes + 1e-12)


def _describe_pass(table: Floats, device: Device) -> Floats:
    return np.column_stack([_log(table), _waves(table[:, 4], 1024.0, device)])


def _describe_product(table: Floats, device: Device) -> Floats:
    rows, columns, inner, many = table.T
    return np.column_stack(
        [
            _log(table),
            _tiles(rows, columns, many, device),
            _tiles(rows, inner, many, device),
            _tiles(inner, columns, many, device),
            _padding(columns, 64.0),
            _padding(inner, 32.0),
            _padding(rows, 128.0),
        ]
    )


def _describe_convolution(table: Floats, device: Device) -> Floats:
    images, channels, made, groups, size_in, size_out, high, wide, stride, padding, times = table.T
    rows = images * size_out**2
    rows_in = images * size_in**2
    inner = channels * high * wide
    return np.column_stack(
        [
            _log(table[:, :6]),
            _log(high), _log(wide), _log(stride), (padding > 0), times, (groups > 1), (high * wide == 1),
            _log(rows), _log(inner), _log(rows_in * channels * groups), _log(rows * made * groups), _log(made * inner),
            _tiles(rows, made, groups, device), _tiles(rows_in, channels, groups, device),
            _tiles(inner, made, groups, device),
            _padding(made, 64.0), _padding(channels, 32.0), _padding(rows, 128.0), _describe_winograd(table, device),
            (high * wide == 1) & (stride > 1), (channels % 4 == 0), size_out % 2,
        ]
    )  # fmt: skip


def _describe_winograd(table: Floats, device: Device) -> Floats:
    """Whether tiles of 4 x 4 may be transformed first, and what that takes of the direct way's time."""
    images, channels, made, groups, _, size_out, high, wide, stride, *_ = table.T
    rows = images * size_out**2
    fits = (high == 3) & (wide == 3) & (stride == 1) & (groups == 1)
    tiles = images * np.ceil(size_out / 4) ** 2
    transformed = 2 * 36 * tiles * channels * made / device.peak_flops
    transformed += 4 * (36 * tiles + rows) * (channels + made) / device.bandwidth_bytes
    direct = 2 * rows * made * (channels * high * wide) / device.peak_flops
    return np.column_stack([fits, fits * _log(transformed / direct)])


def _log(values: Any) -> Floats:
    return np.asarray(np.log2(np.maximum(np.asarray(values, dtype=float), 1e-30)))


def _tiles(rows: Floats, columns: Floats, many: Floats, device: Device) -> Floats:
    """How many times all of the device's units are filled."""
    waves = np.ceil(rows / 128) * np.ceil(columns / 64) * many / device.units
    return np.column_stack([_log(waves), np.minimum(waves, 4.0), np.where(waves < 8, np.ceil(waves) / waves, 1.0)])


def _waves(elements: Floats, block: float, device: Device) -> Floats:
    return np.minimum(elements / block / device.units, 16.0)


def _padding(size: Floats, tile: float) -> Floats:
    """What is computed in vain."""
    return _log(np.ceil(size / tile) * tile / np.maximum(size, 1.0))


_DESCRIBERS = {
    TaskKind.PASS: _describe_pass,
    TaskKind.PRODUCT: _describe_product,
    TaskKind.CONVOLUTION: _describe_convolution,
}
