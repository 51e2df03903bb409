"""The common part of the models of convolutions and passes: times by figures, corrected by what was measured."""

import abc
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import ArrayTrees
from foretell.core.devices import Device
from foretell.core.model_files import check_numbers, read_numbers
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence, KernelTimeModel
from foretell.steps.kernels.learned_factors import (
    MeasuredShifts,
    NamedLevels,
    Path,
    fit_forest,
    fit_trees,
    take_arrays,
)

AnyCall = TypeVar("AnyCall")
_FEWEST = 20  # calls of a part, for trees of its own
_NONE = ""  # the part of calls that no trees correct
_SIMILAR = 0.5  # share of a device's own factor that others of its architecture have


class Figures(Protocol):
    """Figures of calls on a device."""

    def find_seconds(self) -> Floats: ...
    def find_least(self) -> Floats: ...


class CorrectedTimeModel(KernelTimeModel[AnyCall], Generic[AnyCall]):
    """Times by figures, times levels of named kinds of calls, times a bounded factor of trees.

    A call's time is ``physics x exp(level of its names + trees + shift of its device + levels of whole models)``. The
    trees read figures of the call relative to those of the device and move a time by ``most_log`` at most, so that a
    device with figures outside those measured stays near the physics. No time goes below what the device can do.

    **Levels of whole models.** :meth:`with_levels` multiplies all calls of some names, for calls that were hardly
    measured one by one. :meth:`name_levels` says which names a call has; the levels of all of them are added.
    """

    kind: ClassVar[str]
    tree_settings: ClassVar[Mapping[str, Any]]
    most_log: ClassVar[float]
    forests: ClassVar[Mapping[str, float]] = {}  # parts whose times jump, and the most that their trees may change
    forest_columns: ClassVar[Sequence[int]] = ()
    forest_settings: ClassVar[Mapping[str, Any]] = {"n_estimators": 6, "max_leaf_nodes": 2500, "max_features": 0.7}
    _most_kept = 4096  # measured calls of a device that calibration keeps

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        self.levels_ = NamedLevels()
        self.trees_: dict[str, ArrayTrees] = {}
        self.center_, self.scale_ = np.zeros(0), np.ones(0)
        self.seen_: dict[str, dict[str, str]] = {}  # precisions of each device, and its architecture
        self.devices_: dict[str, NamedLevels] = {}
        self.shifts_: dict[str, MeasuredShifts] = {}
        self.offsets_: dict[str, float] = {}
        self.spreads_: dict[str, float] = {}  # standard deviation of log errors by evidence

    # What the two kinds of kernels fill in

    @abc.abstractmethod
    def build_figures(self, calls: Sequence[AnyCall], device: Device) -> Figures:
        """The physics of calls."""

    @abc.abstractmethod
    def describe(self, calls: Sequence[AnyCall], figures: Figures) -> Floats:
        """Columns for the trees."""

    @abc.abstractmethod
    def name_path(self, call: AnyCall, device: Device) -> Path:
        """The names of a call, the coarsest first."""

    @abc.abstractmethod
    def name_levels(self, call: AnyCall, device: Device) -> tuple[str, ...]:
        """The levels of :meth:`with_levels` that a call has."""

    @abc.abstractmethod
    def find_precision(self, call: AnyCall, device: Device) -> str:
        """The type of the call's numbers."""

    def name_parts(self, calls: Sequence[AnyCall]) -> list[str]:
        """The part of each call: each has trees of its own."""
        return ["all"] * len(calls)

    @abc.abstractmethod
    def name_regimes(self, calls: Sequence[AnyCall], figures: Figures) -> list[Path]:
        """Names of calls that one device may run faster or slower than others do, the coarsest first."""

    # Fitting

    def fit(self, calls: Sequence[AnyCall], devices: Sequence[Device], seconds: Floats) -> Self:
        table = _Table([], np.zeros(0), np.zeros(0), [], [], [], [])
        self.seen_ = {}
        for device, places in _group(devices).items():
            some = [calls[place] for place in places]
            figures = self.build_figures(some, device)
            table.add(
                self.describe(some, figures),
                np.log(np.maximum(seconds[places], 1e-7) / figures.find_seconds()),
                self.weigh(seconds[places]) / len(places) ** 0.5,  # no device outweighs the others
                [self.name_path(call, device) for call in some],
                self.name_regimes(some, figures),
                [device.name] * len(some),
                self.name_parts(some),
            )
            self._note(some, device)
        return self._fit_table(table)

    def weigh(self, seconds: Floats) -> Floats:
        """Long calls decide how long a step takes."""
        return np.asarray(np.maximum(seconds, 1e-6) ** 0.25)

    def _fit_table(self, table: "_Table") -> Self:
        X = np.concatenate(table.parts)
        weights = table.weights / table.weights.mean()
        self.center_, self.scale_ = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-6)
        self.levels_ = NamedLevels().fit(table.paths, table.errors, weights)
        rest = table.errors - self.levels_.predict(table.paths)
        self.devices_ = self._fit_devices(table, rest)
        rest -= self._shift_devices(table)
        self.trees_ = {
            part: self._fit_part(part, X[places], rest[places], weights[places])
            for part, places in _group(table.names).items()
            if len(places) >= _FEWEST
        }
        rest += self._shift_devices(table) - self._add_trees(X, table.names)
        self.devices_ = self._fit_devices(table, rest)
        self.shifts_ = {}
        return self

    def _fit_part(self, part: str, X: Floats, rest: Floats, weights: Floats) -> ArrayTrees:
        bound = self.forests.get(part, self.most_log)
        rest = np.clip(rest, -bound, bound)
        if part in self.forests:
            chosen = X[:, list(self.forest_columns)]
            return fit_forest(chosen, rest, weights, settings=self.forest_settings, seed=self.seed)
        return fit_trees(X, rest, weights, settings=self.tree_settings, seed=self.seed)

    def _add_trees(self, X: Floats, names: Sequence[str]) -> Floats:
        found = np.zeros(len(X))
        for part, places in _group(names).items():
            if part in self.trees_:
                bound = self.forests.get(part, self.most_log)
                some = X[places][:, list(self.forest_columns)] if part in self.forests else X[places]
                found[places] = np.clip(self.trees_[part].predict(some), -bound, bound)
        return found

    def _fit_devices(self, table: "_Table", rest: Floats) -> dict[str, NamedLevels]:
        found = {}
        for name, places in table.find_devices().items():
            some = [table.regimes[place] for place in places]
            found[name] = NamedLevels().fit(some, rest[places], table.weights[places])
        return found

    def _shift_devices(self, table: "_Table") -> Floats:
        shift = np.zeros(len(table.errors))
        for name, places in table.find_devices().items():
            shift[places] = self.devices_[name].predict([table.regimes[place] for place in places])
        return shift

    def _note(self, calls: Sequence[AnyCall], device: Device) -> None:
        found = {self.find_precision(call, device) for call in calls}
        known = self.seen_.setdefault(device.name, {})
        known |= dict.fromkeys(sorted(found), device.architecture)

    # Predicting

    def predict(self, calls: Sequence[AnyCall], device: Device) -> Floats:
        if not calls:
            return np.zeros(0)
        figures = self.build_figures(calls, device)
        factor = self._predict_factor(calls, figures, device)
        return np.asarray(np.maximum(figures.find_seconds() * np.exp(factor), figures.find_least()))

    def _predict_factor(self, calls: Sequence[AnyCall], figures: Figures, device: Device) -> Floats:
        factor = self._add_offsets(calls, device)
        trust, shifts = self.trust(figures), self.shifts_.get(device.name)
        if not self.levels_.levels or not (shifts or np.any(trust)):
            return factor
        X, paths = self.describe(calls, figures), [self.name_path(call, device) for call in calls]
        parts = [part if sure else _NONE for part, sure in zip(self.name_parts(calls), trust, strict=True)]
        learned = self.levels_.predict(paths) + self._add_trees(X, parts)
        similar = self._find_similar(device)
        regimes = self.name_regimes(calls, figures) if similar else []
        for known in similar:
            learned += known.predict(regimes) / len(similar)
        factor += trust * learned
        if shifts:
            factor += shifts.predict(paths, self._scale(X))
        return factor

    def _find_similar(self, device: Device) -> list[NamedLevels]:
        """What the device itself showed; that of devices of its architecture, by half, where it is not known."""
        if device.name in self.devices_:
            return [self.devices_[device.name]]
        same = [
            name for name, known in self.seen_.items() if device.architecture and device.architecture in known.values()
        ]
        return [
            NamedLevels({key: value * _SIMILAR for key, value in self.devices_[name].levels.items()})
            for name in same
            if name in self.devices_
        ]

    def _add_offsets(self, calls: Sequence[AnyCall], device: Device) -> Floats:
        if not self.offsets_:
            return np.zeros(len(calls))
        known = self.offsets_
        return np.array([sum(known.get(name, 0.0) for name in self.name_levels(call, device)) for call in calls])

    def trust(self, figures: Figures) -> Floats:
        """How far what was learned holds for each call, from 0 to 1."""
        return np.ones(len(figures.find_seconds()))

    def _scale(self, X: Floats) -> Floats:
        return np.asarray((X - self.center_) / self.scale_)

    def find_evidence(self, device: Device, precision: str) -> Evidence:
        if precision in self.seen_.get(device.name, {}):
            return Evidence.MEASURED
        same = (known.get(precision) for known in self.seen_.values())
        return Evidence.SIMILAR if device.architecture and device.architecture in same else Evidence.FIGURES

    def calibrate(self, calls: Sequence[AnyCall], device: Device, seconds: Floats) -> Self:
        other = self._copy()
        some = list(calls)[: self._most_kept]
        other.shifts_.pop(device.name, None)
        errors = np.log(np.maximum(seconds[: len(some)], 1e-7) / other.predict(some, device))
        points = self._scale(self.describe(some, self.build_figures(some, device)))
        other.shifts_[device.name] = MeasuredShifts.build(
            [self.name_path(call, device) for call in some], points, errors
        )
        other._note(some, device)
        return other

    def with_levels(self, levels: Mapping[str, float]) -> Self:
        """A model whose calls of these names take ``exp(level)`` times as long; this one does not change."""
        other = self._copy()
        other.offsets_ = self.offsets_ | {name: float(level) for name, level in levels.items()}
        return other

    def _copy(self) -> Self:
        other = type(self)(seed=self.seed)
        other.__dict__ |= self.__dict__
        other.shifts_, other.seen_ = dict(self.shifts_), {name: dict(known) for name, known in self.seen_.items()}
        return other

    # Files

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        record: dict[str, Any] = {
            "seed": self.seed,
            "levels": self.levels_.levels,
            "devices": {name: known.levels for name, known in self.devices_.items()},
            "offsets": self.offsets_,
            "seen": self.seen_,
            "spreads": self.spreads_,
            "shifts": {},
        }
        arrays: dict[str, NDArray[Any]] = {"center": self.center_, "scale": self.scale_}
        for part, trees in self.trees_.items():
            arrays |= {f"trees.{part}.{name}": values for name, values in trees.to_arrays().items()}
        for place, (name, shifts) in enumerate(self.shifts_.items()):
            record["shifts"][name], some = shifts.to_state()
            arrays |= {f"shifts{place}.{part}": values for part, values in some.items()}
        return record, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls(seed=int(record["seed"]))
        model.levels_ = NamedLevels(read_numbers(record["levels"]))
        model.offsets_, model.spreads_ = read_numbers(record["offsets"]), read_numbers(record["spreads"])
        model.seen_ = {
            str(name): {str(precision): str(architecture) for precision, architecture in known.items()}
            for name, known in record["seen"].items()
        }
        model.devices_ = {str(name): NamedLevels(read_numbers(known)) for name, known in record["devices"].items()}
        model.center_ = check_numbers(arrays["center"], shape=(None,)) if arrays["center"].size else arrays["center"]
        model.scale_ = arrays["scale"]
        trees = take_arrays(arrays, "trees.")
        model.trees_ = {
            part: ArrayTrees.from_arrays(take_arrays(trees, f"{part}."), columns=len(model.center_))
            for part in dict.fromkeys(name.partition(".")[0] for name in trees)
        }
        model.shifts_ = {
            str(name): MeasuredShifts.from_state(known, take_arrays(arrays, f"shifts{place}."))
            for place, (name, known) in enumerate(record["shifts"].items())
        }
        return model


class _Table:
    """What a model is fitted on, a row for each call."""

    def __init__(
        self,
        parts: list[Floats],
        errors: Floats,
        weights: Floats,
        paths: list[Path],
        regimes: list[Path],
        devices: list[str],
        names: list[str],
    ) -> None:
        self.parts, self.errors, self.weights = parts, errors, weights
        self.paths, self.regimes, self.devices, self.names = paths, regimes, devices, names

    def add(
        self,
        part: Floats,
        errors: Floats,
        weights: Floats,
        paths: list[Path],
        regimes: list[Path],
        devices: list[str],
        names: list[str],
    ) -> None:
        self.parts.append(part)
        self.errors, self.weights = np.append(self.errors, errors), np.append(self.weights, weights)
        self.paths += paths
        self.regimes += regimes
        self.devices += devices
        self.names += names

    def find_devices(self) -> dict[str, list[int]]:
        return _group(self.devices)


Key = TypeVar("Key", bound=Hashable)


def _group(keys: Iterable[Key]) -> dict[Key, list[int]]:
    found: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return found
