"""Models of kernel times: a law of physics with a few parameters, times a factor learned by trees."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.array_trees import ArrayTrees
from foretell.core.devices import Device
from foretell.core.model_files import check_numbers, read_numbers
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Call, Evidence, KernelTimeModel
from foretell.steps.kernels.device_rates import Rates, classify_precision, find_rates
from foretell.steps.kernels.physics_parameters import Parameter, adapt_parameters, fit_parameters
from foretell.steps.kernels.residual_process import ResidualProcess

_MOST_FACTOR = 0.8  # logarithm of what the trees may add
_LAW_ROWS = 150  # of a device, for fitting a law
_POINTS = 300  # kept of a device that a model is fitted on
_CALIBRATED_POINTS = 1000  # kept of a device that is calibrated
_NOISE = 0.1  # of logarithms of times, about the law of one device
_SHARED = 0.9  # of what devices of an architecture have in common holds for another one
_REGIMES = ("matrix", "vector")  # with matrix units and without


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Kernels as the parts of a model see them."""

    seconds: Floats  # by the law
    features: Floats  # for the trees
    places: Floats  # for the process of one device
    least: Floats  # seconds at the peak of the device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFit:
    """What measurements of one device add, in one class of precisions."""

    device: str
    architecture: str
    precision: str  # the class
    theta: Floats
    process: ResidualProcess
    trees: Mapping[str, ArrayTrees] = field(default_factory=dict)  # by regime, with leaves estimated again


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group(Generic[Call]):
    """The measured calls of one device in one precision."""

    device: Device
    precision: str
    calls: Sequence[Call]
    seconds: Floats

    @property
    def rates(self) -> Rates:
        return find_rates(self.device, self.precision)

    def thin(self, count: int) -> "_Group[Call]":
        """At most so many of them, the same ones each time."""
        if len(self.calls) <= count:
            return self
        kept = np.random.default_rng(0).permutation(len(self.calls))[:count]
        return replace(self, calls=[self.calls[place] for place in kept], seconds=self.seconds[kept])


class LawTimeModel(KernelTimeModel[Call]):
    """A law, its parameters by regime and for known devices, and trees over what the law leaves unexplained."""

    parameters: ClassVar[tuple[Parameter, ...]]
    columns: ClassVar[int]  # of the features
    place_columns: ClassVar[int]

    def __init__(self) -> None:
        self.thetas_: dict[str, Floats] = {}
        self.trees_: dict[str, ArrayTrees] = {}
        self.fits_: tuple[DeviceFit, ...] = ()
        self.spreads_: dict[str, float] = {}

    @abc.abstractmethod
    def stack(self, calls: Sequence[Call]) -> Any:
        """The sizes of kernels as arrays."""

    @abc.abstractmethod
    def time(self, sizes: Any, rates: Rates, theta: Floats) -> Any:
        """What the law says of kernels of one precision on one device, with ``seconds``."""

    @abc.abstractmethod
    def relate(self, sizes: Any, times: Any, rates: Rates) -> Described:
        """Kernels relative to the device."""

    def describe(self, calls: Sequence[Call], rates: Rates, theta: Floats) -> Described:
        """Kernels of one precision on one device."""
        sizes = self.stack(calls)
        return self.relate(sizes, self.time(sizes, rates, theta), rates)

    def _time_all(self, groups: Sequence["_Group[Call]"]) -> Callable[[Floats], Floats]:
        """The logarithms of the times of all groups by the law, for any parameters."""
        laws = [(self.stack(group.calls), group.rates) for group in groups]
        return lambda theta: np.concatenate([np.log(self.time(*law, theta).seconds) for law in laws])

    # Fitting

    def fit(self, calls: Sequence[Call], devices: Sequence[Device], seconds: Floats) -> Self:
        groups = _group_calls(calls, devices, np.asarray(seconds, dtype=np.float64))
        self.fits_ = ()
        for regime in _REGIMES:
            members = [group for group in groups if _find_regime(group.rates) == regime]
            if members:
                self.thetas_[regime] = self._fit_law(members)
                self.trees_[regime] = self._fit_trees(members, self.thetas_[regime])
        classes = sorted({(group.device.name, classify_precision(group.precision)) for group in groups})
        self.fits_ = tuple(self._fit_device([group for group in groups if _key(group) == key]) for key in classes)
        return self

    def _fit_law(self, groups: Sequence[_Group[Call]]) -> Floats:
        few = [group.thin(_LAW_ROWS) for group in groups]
        return fit_parameters(
            self.parameters,
            self._time_all(few),
            np.concatenate([group.seconds for group in few]),
            np.concatenate([np.full(len(group.calls), 1 / np.sqrt(len(group.calls))) for group in few]),
        )

    def _fit_trees(self, groups: Sequence[_Group[Call]], theta: Floats) -> ArrayTrees:
        """Trees over the errors of the law, but for how much faster a device is than the law on the whole."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        described = [self.describe(group.calls, group.rates, theta) for group in groups]
        errors = [np.log(group.seconds / each.seconds) for group, each in zip(groups, described, strict=True)]
        weights = [np.full(len(each), min(1.0, 3000 / len(each))) for each in errors]
        model = HistGradientBoostingRegressor(
            max_iter=300,
            learning_rate=0.08,
            max_leaf_nodes=40,
            min_samples_leaf=min(30, max(2, sum(map(len, errors)) // 20)),
            l2_regularization=5.0,
            random_state=0,
            early_stopping=False,
        )
        model.fit(
            np.concatenate([each.features for each in described]),
            np.concatenate([each - np.median(each) for each in errors]),
            sample_weight=np.concatenate(weights),
        )
        return ArrayTrees.from_boosting(model, dtype=np.float32)

    def _fit_device(self, groups: Sequence[_Group[Call]], *, points: int = _POINTS, leaves: bool = False) -> DeviceFit:
        """What a device adds; ``leaves``: the trees get values of its own, in the regime of its first precision."""
        few = [group.thin(points // len(groups)) for group in groups]
        device, theta = few[0].device, self._find_theta(few[0].device, few[0].precision)
        known = [self._describe_shared(group) for group in few]
        factors = [self._grow(group, each.features) for group, each in zip(few, known, strict=True)]
        logs = np.concatenate([np.log(group.seconds) for group in few]) - np.concatenate(factors)
        law = self._time_all(few)
        theta = adapt_parameters(self.parameters, law, logs, near=theta, noise=_NOISE)
        left = logs - law(theta)
        regimes = {self._choose_regime(group.rates) for group in few}
        places, features = (np.concatenate([getattr(each, name) for each in known]) for name in ("places", "features"))
        trees = {name: self.trees_[name] for name in regimes if leaves and len(regimes) == 1}
        found = next((each.find_leaves(features) for each in trees.values()), None)
        process, changes = ResidualProcess.fit(places, left, leaves=found)
        return DeviceFit(
            device=device.name,
            architecture=device.architecture,
            precision=classify_precision(few[0].precision),
            theta=theta,
            process=process,
            trees={name: _change_leaves(each, changes) for name, each in trees.items()},
        )

    def _describe_shared(self, group: _Group[Call]) -> Described:
        return self.describe(group.calls, group.rates, self.thetas_[self._choose_regime(group.rates)])

    def _grow(self, group: _Group[Call], features: Floats) -> Floats:
        """The logarithms of the shared trees' factors."""
        return _bound(self.trees_[self._choose_regime(group.rates)].predict(features))

    def _choose_regime(self, rates: Rates) -> str:
        """The regime of these rates, or the one that was measured."""
        regime = _find_regime(rates)
        return regime if regime in self.thetas_ else next(iter(self.thetas_))

    # Predicting

    def predict(self, calls: Sequence[Call], device: Device) -> Floats:
        precisions = np.array([call.precision for call in calls])  # type: ignore[attr-defined]
        found = np.zeros(len(calls))
        for precision in dict.fromkeys(precisions.tolist()):
            places = np.flatnonzero(precisions == precision)
            found[places] = self._predict_alike([calls[place] for place in places.tolist()], device, precision)
        return found

    def _predict_alike(self, calls: Sequence[Call], device: Device, precision: str) -> Floats:
        rates = find_rates(device, precision)
        regime = self._choose_regime(rates)
        shared = self.describe(calls, rates, self.thetas_[regime])
        theta = self._find_theta(device, precision)
        law = shared.seconds if theta is self.thetas_[regime] else self.time(self.stack(calls), rates, theta).seconds
        fit = self._find_fit(device, precision)
        trees = (fit.trees if fit else {}).get(regime, self.trees_[regime])
        logs = np.log(law) + _bound(trees.predict(shared.features))
        logs = logs + (fit.process.predict(shared.places) if fit else 0.0)
        return np.asarray(np.maximum(np.exp(logs), shared.least))

    def _find_fit(self, device: Device, precision: str) -> DeviceFit | None:
        key = (device.name, classify_precision(precision))
        return next((fit for fit in self.fits_ if (fit.device, fit.precision) == key), None)

    def _find_theta(self, device: Device, precision: str) -> Floats:
        """The parameters of a device: its own, near those of its architecture, or those of all."""
        fit = self._find_fit(device, precision)
        if fit is not None:
            return fit.theta
        shared = self.thetas_[self._choose_regime(find_rates(device, precision))]
        alike = [fit.theta - shared for fit in self._find_similar(device, precision)]
        return shared + _SHARED * np.mean(alike, axis=0) if alike else shared

    def _find_similar(self, device: Device, precision: str) -> Iterator[DeviceFit]:
        key = (device.architecture, classify_precision(precision))
        return (fit for fit in self.fits_ if fit.architecture and (fit.architecture, fit.precision) == key)

    def find_evidence(self, device: Device, precision: str) -> Evidence:
        if self._find_fit(device, precision) is not None:
            return Evidence.MEASURED
        return Evidence.SIMILAR if any(self._find_similar(device, precision)) else Evidence.FIGURES

    def calibrate(self, calls: Sequence[Call], device: Device, seconds: Floats) -> Self:
        groups = _group_calls(calls, [device] * len(calls), np.asarray(seconds, dtype=np.float64))
        other = type(self)()
        other.thetas_, other.trees_, other.spreads_ = self.thetas_, self.trees_, self.spreads_
        other.fits_ = self.fits_
        for key in sorted({_key(group) for group in groups}):
            own = [group for group in groups if _key(group) == key]
            fit = self._fit_device(own, points=_CALIBRATED_POINTS, leaves=True)
            other.fits_ = (*(each for each in other.fits_ if (each.device, each.precision) != key), fit)
        return other

    # Files

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        record: dict[str, Any] = {
            "regimes": list(self.thetas_),
            "spreads": self.spreads_,
            "devices": [[fit.device, fit.architecture, fit.precision] for fit in self.fits_],
        }
        arrays: dict[str, NDArray[Any]] = {}
        for regime, theta in self.thetas_.items():
            arrays[f"{regime}/theta"] = theta
            arrays |= {f"{regime}/trees/{name}": values for name, values in self.trees_[regime].to_arrays().items()}
        for place, fit in enumerate(self.fits_):
            arrays[f"{place}/theta"] = fit.theta
            arrays |= {f"{place}/{name}": values for name, values in fit.process.to_arrays().items()}
            arrays |= {f"{place}/leaves/{regime}": trees.value for regime, trees in fit.trees.items()}
        return record, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = cls()
        for regime in record["regimes"]:
            if regime not in _REGIMES:
                raise ValueError(f"a regime {regime!r}, expected {' or '.join(_REGIMES)}")
            model.thetas_[regime] = _read_theta(arrays[f"{regime}/theta"], cls.parameters)
            model.trees_[regime] = ArrayTrees.from_arrays(_below(arrays, f"{regime}/trees/"), columns=cls.columns)
        if not model.thetas_:
            raise ValueError("a model without parameters")
        model.spreads_ = read_numbers(record["spreads"])
        model.fits_ = tuple(
            DeviceFit(
                device=str(device),
                architecture=str(architecture),
                precision=str(precision),
                theta=_read_theta(arrays[f"{place}/theta"], cls.parameters),
                process=ResidualProcess.from_arrays(_below(arrays, f"{place}/"), columns=cls.place_columns),
                trees={
                    regime: _read_leaves(model.trees_[regime], values)
                    for regime, values in _below(arrays, f"{place}/leaves/").items()
                },
            )
            for place, (device, architecture, precision) in enumerate(record["devices"])
        )
        return model


def _below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _read_theta(values: NDArray[Any], parameters: Sequence[Parameter]) -> Floats:
    return np.asarray(check_numbers(values, shape=(len(parameters),)), dtype=np.float64)


def _read_leaves(trees: ArrayTrees, values: NDArray[Any]) -> ArrayTrees:
    return trees.with_values(check_numbers(values, shape=trees.value.shape))


def _change_leaves(trees: ArrayTrees, changes: Floats) -> ArrayTrees:
    """Changes of the first so many nodes; the others keep their values."""
    value = trees.value.copy()
    value[: len(changes)] += changes
    return trees.with_values(value)


def _bound(factors: Floats) -> Floats:
    return np.clip(factors, -_MOST_FACTOR, _MOST_FACTOR)


def _find_regime(rates: Rates) -> str:
    return _REGIMES[0] if rates.matrix else _REGIMES[1]


def _key(group: _Group[Any]) -> tuple[str, str]:
    return group.device.name, classify_precision(group.precision)


def _group_calls(calls: Sequence[Call], devices: Sequence[Device], seconds: Floats) -> list[_Group[Call]]:
    places: dict[tuple[str, str], list[int]] = {}
    for place, (call, device) in enumerate(zip(calls, devices, strict=True)):
        places.setdefault((device.name, call.precision), []).append(place)  # type: ignore[attr-defined]
    return [
        _Group(
            device=devices[found[0]],
            precision=precision,
            calls=[calls[place] for place in found],
            seconds=seconds[found],
        )
        for (_name, precision), found in places.items()
    ]
