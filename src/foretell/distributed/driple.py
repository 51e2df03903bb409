"""Driple's inspector as it was published: a graph network for each setting, and transfer to others.

Yang et al., Prediction of the Resource Consumption of Distributed Deep Learning Systems, https://doi.org/10.1145/3530895
"""

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from foretell.core.cycles import Metric, Resource
from foretell.core.errors import MissingExtraError, NotFoundError
from foretell.core.units import render_link
from foretell.core.workload import Floats, Workload
from foretell.distributed._base import ConsumptionModel
from foretell.distributed.consumption import Case, Consumed, MeasuredJob, Setting, Strategy
from foretell.distributed.consumption_targets import TARGETS, find_period, read_targets, sum_compute
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
_LEAST = 1e-3  # of the largest value learned: no answer is below


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of one setting."""

    kinds: Mapping[str, float]  # share of each kind among the operators learned from
    features: Floats  # centre and spread of each feature
    targets: Floats  # the largest value of each target, which is 1 to the network; not a number where no job taught it
    weights: Mapping[str, NDArray[np.float32]]
    sizes: Sizes  # of its batches
    jobs: int


class DripleModel(ConsumptionModel):
    """One network a setting; a setting that no job was in, or was carried over to, is refused.

    A step's graph is grouped by asynchronous fluid communities. A group's features are the shares of its operators'
    kinds in all that was learned from, added up, the bytes of its results, and how many operators it has, each
    standardised. A first graph convolution, one that is repeated for half of the nodes, with a GRU after each;
    set2set; three layers to twelve targets, each over its largest value learned. Adam, learning rate 0.003, mean square
    error, batches of graphs of alike size. Hidden width, learning rate, targets over their maximum, and the order of a
    GRU's inputs are those of the authors' program, which trains for up to 100,000 epochs with a validation set to stop;
    here epochs are fixed, so that every job teaches, gradients are bounded, and the learning rate falls to nothing,
    without which so few do not suffice.

    A graph that is asked about is grouped as those of its size were when they were learned from, since an answer must
    not depend on what else is asked. The inspector tells no iteration: it is what bursts and idles add up
    to. Answers below a thousandth of the largest value learned are taken for that.
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
        self.groups = groups  # of uniform grouping
        self.batch = batch
        self.learning_rate = learning_rate
        self.threads = threads
        self.seed = seed

    def fit(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Self:
        """Learn each setting by itself; returns itself.

        Raises:
            MissingExtraError: if PyTorch or networkx is not installed.
        """
        self.settings_ = {setting: self._learn(steps, some) for setting, steps, some in _split(cases, jobs)}
        return self

    def transfer(
        self, cases: Sequence[Case], jobs: Sequence[MeasuredJob], *, source: Setting | None = None
    ) -> "DripleModel":
        """A model that knows the settings of these jobs too, learned from one it knows: by default that of most jobs.

        The second half of the repeated layers gets weights of its own, which begin as those of all; they and the last
        three layers are trained, the rest stays as it is.

        Raises:
            NotFoundError: if the source is no setting it knows.
        """
        source = source or max(self.settings_, key=lambda setting: self.settings_[setting].jobs)
        start = self._get(source)
        found = {setting: self._learn(steps, some, start) for setting, steps, some in _split(cases, jobs)}
        other = copy.copy(self)
        other.settings_ = {**self.settings_, **found}
        return other

    def predict(self, cases: Sequence[Case]) -> list[Consumed]:
        """What each case consumes.

        Raises:
            NotFoundError: if a case is in a setting that it has not learned.
        """
        told: dict[int, Consumed] = {}
        for setting in dict.fromkeys(case.setting for case in cases):
            places = [place for place, case in enumerate(cases) if case.setting == setting]
            values = self._tell(self._get(setting), [cases[place].workload for place in places])
            told |= {place: _build(cases[place], row) for place, row in zip(places, values, strict=True)}
        return [told[place] for place in range(len(cases))]

    def _get(self, setting: Setting) -> Learned:
        try:
            return self.settings_[setting]
        except KeyError:
            raise NotFoundError(
                "setting that was learned",
                describe(setting),
                known=map(describe, self.settings_),
                hint="This method answers only where jobs were measured: measure a few there and carry it over.",
            ) from None

    # Learning

    def _learn(
        self, workloads: Sequence[Workload], jobs: Sequence[MeasuredJob], start: Learned | None = None
    ) -> Learned:
        inspector = _import_inspector()
        graphs = _build_graphs(workloads)
        sizes = start.sizes if start else self._find_sizes(graphs)
        grouped = [group_by_size(graph, sizes, self.seed) for graph in graphs]
        kinds = start.kinds if start else _find_shares(graphs)
        features = [_read_features(graph, kinds) for graph in grouped]
        spread = start.features if start else _find_spread(np.concatenate(features))
        targets = read_targets(jobs)
        scale = _find_largest(targets)
        batches = [
            inspector.build_batch(
                [_standardise(features[place], spread) for place in places],
                [grouped[place].edges for place in places],
                targets[places] / scale,
            )
            for places in self._find_batches(graphs, grouped)
        ]
        with torch_seed(seed=self.seed, threads=self.threads):
            network = self._resume(start, split=True) if start else inspector.begin(FEATURES, self.hidden, len(TARGETS))
            weights = inspector.train(
                network,
                batches,
                epochs=self.transfer_epochs if start else self.epochs,
                learning_rate=self.learning_rate,
            )
        return Learned(kinds=kinds, features=spread, targets=scale, weights=weights, sizes=sizes, jobs=len(jobs))

    def _resume(self, learned: Learned, *, split: bool = False) -> Any:
        inspector = _import_inspector()
        network = inspector.resume(learned.weights, features=FEATURES, hidden=self.hidden, targets=len(TARGETS))
        return inspector.split(network) if split else network

    def _find_sizes(self, graphs: Sequence[StepGraph]) -> Sizes:
        if self.grouping == "proportional":
            return find_sizes(graphs, self.batch)
        return ((0, self.groups if self.grouping == "uniform" else sys.maxsize),)

    def _find_batches(self, graphs: Sequence[StepGraph], grouped: Sequence[StepGraph]) -> Iterator[list[int]]:
        """Places of graphs by their size; those of a batch that were too small to be grouped are batches themselves."""
        order = sorted(range(len(graphs)), key=lambda place: len(graphs[place].nodes))
        for begin in range(0, len(order), self.batch):
            yield from _split_by_size(order[begin : begin + self.batch], grouped)

    # Telling

    def _tell(self, learned: Learned, workloads: Sequence[Workload]) -> Floats:
        """A row for each workload; not a number where no job taught a target."""
        inspector = _import_inspector()
        grouped = [group_by_size(graph, learned.sizes, self.seed) for graph in _build_graphs(workloads)]
        told = np.empty((len(grouped), len(TARGETS)))
        with torch_seed(seed=self.seed, threads=self.threads):
            network = self._resume(learned)
            for places in _split_by_size(range(len(grouped)), grouped):
                features = [
                    _standardise(_read_features(grouped[place], learned.kinds), learned.features) for place in places
                ]
                edges = [grouped[place].edges for place in places]
                told[places] = inspector.tell(network, inspector.build_batch(features, edges, np.empty((0, 0))))
        return np.asarray(np.maximum(told, _LEAST) * learned.targets)

    # As plain values and arrays

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that was learned."""
        names = (
            "epochs",
            "transfer_epochs",
            "hidden",
            "grouping",
            "groups",
            "batch",
            "learning_rate",
            "threads",
            "seed",
        )
        record: dict[str, Any] = {"options": {name: getattr(self, name) for name in names}, "settings": []}
        arrays: dict[str, NDArray[Any]] = {}
        for number, (setting, learned) in enumerate(self.settings_.items()):
            record["settings"].append(
                {"setting": asdict(setting), "kinds": dict(learned.kinds), "sizes": learned.sizes, "jobs": learned.jobs}
            )
            arrays |= {f"{number}/weights/{name}": values for name, values in learned.weights.items()}
            arrays |= {f"{number}/features": learned.features, f"{number}/targets": learned.targets}
        return record, arrays

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model that :meth:`to_state` took apart."""
        model = cls(**record["options"])
        model.settings_ = {}
        for number, known in enumerate(record["settings"]):
            prefix = f"{number}/weights/"
            weights = {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}
            setting = Setting(**{**known["setting"], "strategy": Strategy(known["setting"]["strategy"])})
            model.settings_[setting] = Learned(
                kinds=known["kinds"],
                features=arrays[f"{number}/features"],
                targets=arrays[f"{number}/targets"],
                weights=weights,
                sizes=tuple((int(nodes), int(groups)) for nodes, groups in known["sizes"]),
                jobs=known["jobs"],
            )
        return model


def describe(setting: Setting) -> str:
    """A setting in words."""
    link = render_link(setting.link_bytes_per_s) if setting.link_bytes_per_s else "no named link"
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


def _find_spread(values: Floats) -> Floats:
    """Centre and spread of each column."""
    spread = values.std(axis=0)
    return np.stack([values.mean(axis=0), np.where(spread > 0, spread, 1.0)])


def _standardise(values: Floats, spread: Floats) -> Floats:
    return np.asarray((values - spread[0]) / spread[1])


def _find_largest(values: Floats) -> Floats:
    """The largest value of each column; not a number where nothing is known."""
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


def _import_inspector() -> Any:
    try:
        from foretell.distributed import driple_network as inspector
    except ImportError as exc:
        raise MissingExtraError("model 'driple' needs: pip install 'foretell[torch]'") from exc
    return inspector
