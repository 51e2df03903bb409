"""The published Driple: a graph neural network for each setting, and transfer to other settings.

Yang et al., Prediction of the Resource Consumption of Distributed Deep Learning Systems, https://doi.org/10.1145/3530895
"""

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import MissingExtraError, NotFoundError
from foretell.core.model_files import check_numbers, read_number, read_numbers
from foretell.core.observation import Metric, Resource
from foretell.core.serialization import from_record
from foretell.core.units import render_link
from foretell.core.workload import Floats, Workload
from foretell.distributed._base import TARGETS, Arrays, TransferableModel, find_period, read_targets, sum_compute
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Setting, Strategy
from foretell.distributed.step_graph import (
    BATCH,
    UNIFORM_GROUPS,
    Sizes,
    StepGraph,
    build_graph,
    count_kinds,
    find_sizes,
    group_by_size,
)
from foretell.steps.torch_seed import torch_seed

FEATURES = 3
_LEAST = 1e-3  # of the largest measured value: no prediction is below


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """The network of one setting, and how its inputs and outputs are scaled."""

    kinds: Mapping[str, float]  # share of each kind among the operators of all jobs
    features: Floats  # mean and standard deviation of each feature
    targets: Floats  # the largest value of each target, which is 1 to the network; NaN where no job has it
    weights: Mapping[str, NDArray[np.float32]]
    sizes: Sizes  # of its batches
    jobs: int


class DripleModel(TransferableModel):
    """One network for each setting; other settings are refused until it is transferred to them.

    **Features.** A step's graph is grouped by asynchronous fluid communities. A group has three features, standardised:
    the sum of the shares of its operators' kinds in all jobs, the bytes of its results, and its operators.
    **Network.** A first graph convolution, then one with shared weights that is repeated for half of the nodes, a GRU
    after each; set2set; three layers to twelve targets, each relative to its largest measured value.
    **Training.** Adam, learning rate 0.003, mean square error, batches of graphs of similar size. Hidden width,
    learning rate, the scale of targets and the order of the GRU's inputs are those of the authors' program. That trains
    for up to 100,000 epochs with a validation set to stop; here epochs are fixed and all jobs are used for training,
    gradients are clipped and the learning rate decays to 0, without which so few epochs do not suffice.
    **Predictions.** A graph is grouped as those of its size were in training, so that a prediction does not depend on
    other cases. The iteration is the sum of burst and idle. No value is below a thousandth of the largest measured.
    """

    kind: ClassVar[str] = "driple"

    def __init__(
        self,
        epochs: int = 300,
        transfer_epochs: int = 100,
        hidden: int = 64,
        grouping: str = "proportional",
        groups: int = UNIFORM_GROUPS,
        batch: int = BATCH,
        learning_rate: float = 0.003,
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        self.epochs = epochs
        self.transfer_epochs = transfer_epochs
        self.hidden = hidden
        self.grouping = grouping  # proportional, uniform or none
        self.groups = groups  # for uniform grouping
        self.batch = batch
        self.learning_rate = learning_rate
        self.threads = threads
        self.seed = seed

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Train one network for each setting; returns itself.

        Raises:
            MissingExtraError: if PyTorch or networkx is not installed.
        """
        self.settings_ = {setting: self._train(steps, some) for setting, steps, some in _split(cases, jobs)}
        return self

    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob], *, source: Setting | None = None) -> Self:
        """A model for the settings of these jobs too, fine-tuned from the network of ``source``.

        Without ``source``, that is the setting with most jobs. The second half of the repeated layers gets its own
        weights; they and the last three layers are trained, the others stay.

        Raises:
            NotFoundError: The source is none of its settings.
        """
        source = source or max(self.settings_, key=lambda setting: self.settings_[setting].jobs)
        start = self._get(source)
        found = {setting: self._train(steps, some, start) for setting, steps, some in _split(cases, jobs)}
        other = copy.copy(self)
        other.settings_ = {**self.settings_, **found}
        return other

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes.

        Raises:
            NotFoundError: A case has a setting that it was not fitted to.
        """
        predicted: dict[int, Consumed] = {}
        for setting in dict.fromkeys(case.setting for case in cases):
            places = [place for place, case in enumerate(cases) if case.setting == setting]
            values = self._predict_setting(self._get(setting), [cases[place].workload for place in places])
            predicted |= {place: _build(cases[place], row) for place, row in zip(places, values, strict=True)}
        return [predicted[place] for place in range(len(cases))]

    def can_predict(self, setting: Setting) -> bool:
        """Whether it was fitted or transferred to the setting."""
        return setting in self.settings_

    def _get(self, setting: Setting) -> _Fitted:
        try:
            return self.settings_[setting]
        except KeyError:
            raise NotFoundError(
                "setting of this driple model",
                describe(setting),
                known=map(describe, self.settings_),
                hint="Driple predicts only settings that were measured: measure a few jobs there, and transfer it with "
                "'foretell consumption learn --jobs FILE --method driple --from MODEL'.",
            ) from None

    def _train(
        self, workloads: Sequence[Workload], jobs: Sequence[MeasuredJob], start: _Fitted | None = None
    ) -> _Fitted:
        network_module = _import_network()
        graphs = _build_graphs(workloads)
        sizes = start.sizes if start else self._find_sizes(graphs)
        grouped = [group_by_size(graph, sizes, self.seed) for graph in graphs]
        kinds = start.kinds if start else _find_shares(graphs)
        features = [_read_features(graph, kinds) for graph in grouped]
        scale = start.features if start else _find_scale(np.concatenate(features))
        targets = read_targets(jobs)
        largest = _find_largest(targets)
        batches = [
            network_module.build_batch(
                [_standardise(features[place], scale) for place in places],
                [grouped[place].edges for place in places],
                targets[places] / largest,
            )
            for places in self._find_batches(graphs, grouped)
        ]
        with torch_seed(seed=self.seed, threads=self.threads):
            weights = network_module.train(
                self._load(start, tune=True) if start else network_module.build(FEATURES, self.hidden, len(TARGETS)),
                batches,
                epochs=self.transfer_epochs if start else self.epochs,
                learning_rate=self.learning_rate,
            )
        return _Fitted(kinds=kinds, features=scale, targets=largest, weights=weights, sizes=sizes, jobs=len(jobs))

    def _load(self, fitted: _Fitted, *, tune: bool = False) -> Any:
        network_module = _import_network()
        network = network_module.load(fitted.weights, features=FEATURES, hidden=self.hidden, targets=len(TARGETS))
        return network_module.prepare_transfer(network) if tune else network

    def _find_sizes(self, graphs: Sequence[StepGraph]) -> Sizes:
        if self.grouping == "proportional":
            return find_sizes(graphs, self.batch)
        return ((0, self.groups if self.grouping == "uniform" else sys.maxsize),)

    def _find_batches(self, graphs: Sequence[StepGraph], grouped: Sequence[StepGraph]) -> Iterator[list[int]]:
        """Indices of graphs by size; graphs of a batch that are smaller than its groups are batches of their own."""
        order = sorted(range(len(graphs)), key=lambda place: len(graphs[place].nodes))
        for begin in range(0, len(order), self.batch):
            yield from _split_by_size(order[begin : begin + self.batch], grouped)

    def _predict_setting(self, fitted: _Fitted, workloads: Sequence[Workload]) -> Floats:
        """A row of targets for each workload; NaN where no job has the target."""
        network_module = _import_network()
        grouped = [group_by_size(graph, fitted.sizes, self.seed) for graph in _build_graphs(workloads)]
        values = np.empty((len(grouped), len(TARGETS)))
        with torch_seed(seed=self.seed, threads=self.threads):
            network = self._load(fitted)
            for places in _split_by_size(range(len(grouped)), grouped):
                features = [
                    _standardise(_read_features(grouped[place], fitted.kinds), fitted.features) for place in places
                ]
                edges = [grouped[place].edges for place in places]
                values[places] = network_module.predict(
                    network, network_module.build_batch(features, edges, np.empty((0, 0)))
                )
        return np.asarray(np.maximum(values, _LEAST) * fitted.targets)

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The networks of all settings."""
        options = {name: getattr(self, name) for name in (*_OPTIONS, "grouping", "learning_rate")}
        record: dict[str, Any] = {"options": options, "settings": []}
        arrays: dict[str, NDArray[Any]] = {}
        for number, (setting, fitted) in enumerate(self.settings_.items()):
            record["settings"].append(
                {"setting": asdict(setting), "kinds": dict(fitted.kinds), "sizes": fitted.sizes, "jobs": fitted.jobs}
            )
            arrays |= {f"{number}/weights/{name}": values for name, values in fitted.weights.items()}
            arrays |= {f"{number}/features": fitted.features, f"{number}/targets": fitted.targets}
        return record, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Arrays) -> Self:
        """The model with this state."""
        options = {name: _read_count(record["options"][name]) for name in _OPTIONS}
        grouping, learning_rate = str(record["options"]["grouping"]), read_number(record["options"]["learning_rate"])
        model = cls(**options, grouping=grouping, learning_rate=learning_rate)
        model.settings_ = {}
        for number, known in enumerate(record["settings"]):
            setting = from_record(Setting, known["setting"])
            model.settings_[setting] = _read_fitted(known, arrays, number, hidden=model.hidden)
        return model


_OPTIONS = ("epochs", "transfer_epochs", "hidden", "groups", "batch", "threads", "seed")
_MOST = 1_000_000  # of a count in a file


def _read_count(value: Any) -> int:
    number = read_number(value)
    if not (0 <= number <= _MOST and number == int(number)):
        raise ValueError(f"{value!r} instead of a count")
    return int(number)


def _read_fitted(known: Mapping[str, Any], arrays: Arrays, number: int, *, hidden: int) -> _Fitted:
    prefix = f"{number}/weights/"
    weights = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
    _import_network().check_weights(weights, features=FEATURES, hidden=hidden, targets=len(TARGETS))
    targets = arrays[f"{number}/targets"]
    check_numbers(np.nan_to_num(targets), shape=(len(TARGETS),))
    return _Fitted(
        kinds=read_numbers(known["kinds"]),
        features=check_numbers(arrays[f"{number}/features"], shape=(2, FEATURES)),
        targets=targets,
        weights=weights,
        sizes=tuple((int(nodes), int(groups)) for nodes, groups in known["sizes"]),
        jobs=_read_count(known["jobs"]),
    )


def describe(setting: Setting) -> str:
    """``allreduce, 2 workers, 1 Gb/s, T4``."""
    link = render_link(setting.link_bytes_per_s) if setting.link_bytes_per_s else "no link"
    shared = f", {setting.servers} servers" if setting.strategy is Strategy.SERVERS else ""
    wait = "" if setting.synchronous else ", asynchronous"
    part = f" x {setting.share:g}" if setting.share != 1 else ""
    return f"{setting.strategy}, {setting.workers} workers{shared}{wait}, {link}, {setting.device or 'no device'}{part}"


def _split(
    cases: Sequence[Case], jobs: Sequence[MeasuredJob]
) -> Iterator[tuple[Setting, list[Workload], list[MeasuredJob]]]:
    for setting in dict.fromkeys(case.setting for case in cases):
        pairs = [pair for pair in zip(cases, jobs, strict=True) if pair[0].setting == setting]
        yield setting, [case.workload for case, _ in pairs], [job for _, job in pairs]


def _build_graphs(workloads: Iterable[Workload]) -> list[StepGraph]:
    known: dict[int, StepGraph] = {}
    found = []
    for workload in workloads:
        if id(workload) not in known:
            known[id(workload)] = build_graph(workload)
        found.append(known[id(workload)])
    return found


def _split_by_size(places: Iterable[int], grouped: Sequence[StepGraph]) -> Iterator[list[int]]:
    sizes: dict[int, list[int]] = {}
    for place in places:
        sizes.setdefault(len(grouped[place].nodes), []).append(place)
    yield from sizes.values()


def _find_shares(graphs: Sequence[StepGraph]) -> dict[str, float]:
    counts = count_kinds(graphs)
    total = counts.total()
    return {kind: count / total for kind, count in sorted(counts.items())}


def _read_features(graph: StepGraph, shares: Mapping[str, float]) -> Floats:
    """A row for each node: its kinds, its bytes, its size."""
    return np.array(
        [
            [sum(count * shares.get(kind, 0.0) for kind, count in node.kinds), node.bytes_, float(node.size)]
            for node in graph.nodes
        ]
    ).reshape(len(graph.nodes), FEATURES)


def _find_scale(values: Floats) -> Floats:
    """Mean and standard deviation of each column."""
    spread = values.std(axis=0)
    return np.stack([values.mean(axis=0), np.where(spread > 0, spread, 1.0)])


def _standardise(values: Floats, scale: Floats) -> Floats:
    return np.asarray((values - scale[0]) / scale[1])


def _find_largest(values: Floats) -> Floats:
    """The largest value of each column; NaN where nothing was measured."""
    known = np.where(np.isnan(values), -np.inf, values)
    largest = known.max(axis=0, initial=-np.inf)
    return np.where(np.isinf(largest), np.nan, np.where(largest > 0, largest, 1.0))


def _build(case: Case, row: Floats) -> Consumed:
    metrics = {target: float(value) for target, value in zip(TARGETS, row, strict=True) if not np.isnan(value)}
    alone_s = sum_compute(case)
    iteration_s = find_period(metrics)
    if iteration_s is None:
        iteration_s = alone_s
    compute_s = min(metrics.get((Resource.COMPUTE, Metric.BURST), alone_s), iteration_s)
    return Consumed(iteration_s=iteration_s, compute_s=compute_s, exposed_s=iteration_s - compute_s, metrics=metrics)


def _import_network() -> Any:
    try:
        from foretell.distributed import driple_network
    except ImportError as exc:
        raise MissingExtraError("method 'driple' needs: pip install 'foretell[torch]'") from exc
    return driple_network
