"""Predicts the time of a task on a device: its roofline, times a factor fitted on distinct tasks."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import Arrays, ArrayTrees
from foretell.core.devices import Device
from foretell.core.model_files import read_numbers
from foretell.core.workload import Floats, StepPhase
from foretell.steps.device_tasks import DeviceTask, TaskKind

_LAUNCH_S = 3e-6  # shortest time of a kernel
_SHRINK = 4.0  # tasks of a kind that have the weight of the level above
_FACTOR = 12.0  # largest log factor; larger ones are errors of the model
_PHASES = list(StepPhase)
_TREE_SETTINGS = {
    "max_iter": 300,
    "learning_rate": 0.07,
    "max_leaf_nodes": 31,
    "min_samples_leaf": 8,
    "l2_regularization": 1.0,
    "max_features": 0.4,  # each split considers some columns only: no single one decides for unknown kinds
}


def roofline(tasks: Sequence[DeviceTask], device: Device) -> Floats:
    """The shortest possible time of each task."""
    flops = np.array([task.flops for task in tasks])
    moved = np.array([task.bytes_moved for task in tasks])
    kernels = np.array([task.kernels for task in tasks], dtype=float)
    once = kernels * _LAUNCH_S + np.maximum(flops / device.peak_flops, moved / device.bandwidth_bytes)
    return np.asarray(once * np.array([task.repeats for task in tasks]))


class KernelModel:
    """A factor on the roofline: a level for each kind, and boosted trees on the sizes of each kind of task."""

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self.seed = seed

    def fit(self, tasks: Sequence[DeviceTask], seconds: Floats) -> Self:
        """Fit on distinct tasks and their times; returns itself."""
        self.trees_: dict[str, ArrayTrees] = {}
        self.levels_: dict[str, float] = {}
        factor = np.log(np.maximum(seconds, 1e-7) / roofline(tasks, self.device))
        kinds = np.array([task.task_kind.value for task in tasks])
        for kind in TaskKind:
            chosen = np.flatnonzero(kinds == kind.value)
            if len(chosen) < 2:
                continue
            some = [tasks[position] for position in chosen.tolist()]
            self._fit_levels(kind, some, factor[chosen], np.sqrt(seconds[chosen]))
            rest = factor[chosen] - self._find_levels(some)
            self.trees_[kind.value] = fit_trees(
                describe(some, self.device), rest, np.sqrt(seconds[chosen]), seed=self.seed
            )
        return self

    def _fit_levels(self, kind: TaskKind, tasks: Sequence[DeviceTask], factor: Floats, weights: Floats) -> None:
        common = _weighted_median(factor, weights)
        self.levels_[kind.value] = common
        groups: dict[str, list[int]] = {}
        for position, task in enumerate(tasks):
            for name in _name_levels(task)[:2]:
                groups.setdefault(name, []).append(position)
        for name in sorted(groups, key=len):  # the level of a phase first: kinds are shrunk towards it
            size, middle = len(groups[name]), _weighted_median(factor[groups[name]], weights[groups[name]])
            above = self.levels_.get(name.rpartition("/")[0], common)
            self.levels_[name] = (middle * size + above * _SHRINK) / (size + _SHRINK)

    def _find_levels(self, tasks: Sequence[DeviceTask]) -> Floats:
        return np.array([next((self.levels_[n] for n in _name_levels(p) if n in self.levels_), 0.0) for p in tasks])

    def predict(self, tasks: Sequence[DeviceTask]) -> Floats:
        """Seconds of each task."""
        least = roofline(tasks, self.device)
        factor = self._find_levels(tasks)
        kinds = np.array([task.task_kind.value for task in tasks])
        for kind, trees in self.trees_.items():
            chosen = np.flatnonzero(kinds == kind)
            if len(chosen):
                some = [tasks[position] for position in chosen.tolist()]
                factor[chosen] += trees.predict(describe(some, self.device))
        return least * np.exp(np.clip(factor, -_FACTOR, _FACTOR))

    def transfer(self, device: Device) -> "KernelModel":
        """The same factors on the roofline of another device."""
        other = KernelModel(device, seed=self.seed)
        other.trees_, other.levels_ = self.trees_, dict(self.levels_)
        return other

    def shift(self, errors: Sequence[tuple[DeviceTask, float, float]]) -> None:
        """Correct the levels by the log ratios of tasks, each with a weight: the coarse levels first."""
        for depth in (2, 1, 0):
            groups: dict[str, list[tuple[float, float]]] = {}
            moved: dict[str, float] = {}
            for task, off, weight in errors:
                groups.setdefault(_name_levels(task)[depth], []).append((off, weight))
            for name, values in groups.items():
                table = np.array(values)
                moved[name] = _weighted_median(table[:, 0], table[:, 1]) * len(values) / (len(values) + _SHRINK)
            for name in self.levels_:
                above = next((moved[one] for one in (name, *_list_above(name)) if one in moved), 0.0)
                self.levels_[name] += above
            errors = [(task, off - moved[_name_levels(task)[depth]], weight) for task, off, weight in errors]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The trees as arrays."""
        return {
            f"{kind}.{name}": values
            for kind, trees in self.trees_.items()
            for name, values in trees.to_arrays().items()
        }

    @classmethod
    def from_arrays(cls, device: Device, arrays: Arrays, levels: Mapping[str, float]) -> Self:
        """The model of arrays and levels."""
        model = cls(device)
        model.levels_ = read_numbers(levels)
        kinds = dict.fromkeys(name.partition(".")[0] for name in arrays)
        model.trees_ = {
            kind: ArrayTrees.from_arrays(
                {k.partition(".")[2]: v for k, v in arrays.items() if k.startswith(f"{kind}.")}
            )
            for kind in kinds
        }
        return model


def _list_above(name: str) -> list[str]:
    """The coarser levels of a level, the nearest one first."""
    tasks = name.split("/")
    return ["/".join(tasks[:size]) for size in range(len(tasks) - 1, 0, -1)]


def _weighted_median(values: Floats, weights: Floats) -> float:
    """The weighted median: long tasks have more weight than those that are mostly launch."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _name_levels(task: DeviceTask) -> tuple[str, ...]:
    """Levels from the finest to the coarsest: kind in its phase, phase, kind of task."""
    phase = f"{task.task_kind.value}/{task.phase.value}"
    return (f"{phase}/{task.kind}", phase, task.task_kind.value)


def describe(tasks: Sequence[DeviceTask], device: Device) -> Floats:
    """Columns for tasks of one kind."""
    table = np.array([task.sizes for task in tasks], dtype=float)
    common = np.column_stack(
        [
            _log([task.flops + 1 for task in tasks]),
            _log([task.bytes_moved for task in tasks]),
            _log([_balance(task, device) for task in tasks]),
            np.array([_PHASES.index(task.phase) for task in tasks], dtype=float),
            np.array([task.kernels for task in tasks], dtype=float),
            np.array([task.item for task in tasks], dtype=float),
            _log([task.repeats for task in tasks]),
        ]
    )
    return np.column_stack([common, _DESCRIBERS[tasks[0].task_kind](table, device)])


def _balance(task: DeviceTask, device: Device) -> float:
    """The ratio of computing time to memory time."""
    return (task.flops + 1) / device.peak_flops / (task.bytes_moved / device.bandwidth_bytes + 1e-12)


def _describe_memory_pass(table: Floats, device: Device) -> Floats:
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
    """Whether Winograd tiles of 4 x 4 can be used, and their share of the time of a direct convolution."""
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
    """The number of waves that fill all units of the device."""
    waves = np.ceil(rows / 128) * np.ceil(columns / 64) * many / device.units
    return np.column_stack([_log(waves), np.minimum(waves, 4.0), np.where(waves < 8, np.ceil(waves) / waves, 1.0)])


def _waves(elements: Floats, block: float, device: Device) -> Floats:
    return np.minimum(elements / block / device.units, 16.0)


def _padding(size: Floats, tile: float) -> Floats:
    """The ratio of padded to needed size."""
    return _log(np.ceil(size / tile) * tile / np.maximum(size, 1.0))


_DESCRIBERS = {
    TaskKind.MEMORY_PASS: _describe_memory_pass,
    TaskKind.PRODUCT: _describe_product,
    TaskKind.CONVOLUTION: _describe_convolution,
}


# Trees


def fit_trees(X: Floats, y: Floats, weights: Floats | None = None, *, seed: int = 0) -> ArrayTrees:
    """Trees fitted by scikit-learn, as arrays."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    few = len(y) < 20 * _TREE_SETTINGS["min_samples_leaf"]
    model = HistGradientBoostingRegressor(
        **(_TREE_SETTINGS | {"min_samples_leaf": 2, "max_iter": 60} if few else _TREE_SETTINGS),
        early_stopping=False,
        random_state=seed,
    ).fit(X, y, sample_weight=weights)
    trees = ArrayTrees.from_boosting(model, dtype=np.float32)
    check = X[:: max(1, len(X) // 64)]
    assert np.allclose(trees.predict(check), model.predict(check), atol=1e-3), (
        "this version of scikit-learn stores its trees in another way"
    )
    return trees
