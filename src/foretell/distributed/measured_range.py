"""Which placements were measured, and the expected error of predictions outside them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from foretell.core.intervals import count_doublings
from foretell.distributed.placed_steps import PlacedStep, Placement, TimedStep

Fold = tuple[Sequence[TimedStep], Sequence[TimedStep]]


def split_by_gpus(rows: Sequence[TimedStep]) -> list[Fold]:
    """Rows with at most half, or three quarters, of the most GPUs, and the others."""
    most = max(sum(row.placed.gpus) for row in rows)
    bounds = sorted({max(1, most // 2), max(1, most * 3 // 4)})
    folds = [_split(rows, [sum(row.placed.gpus) <= bound for row in rows]) for bound in bounds]
    return _keep_fittable(folds)


def split_by_cluster(rows: Sequence[TimedStep]) -> list[Fold]:
    """All clusters but one, and that one, for each cluster."""
    names = sorted({row.placed.cluster for row in rows})
    folds = [_split(rows, [row.placed.cluster != name for row in rows]) for name in names]
    return _keep_fittable(folds)


def split_by_batch(rows: Sequence[TimedStep]) -> list[Fold]:
    """Every other batch of a workload on a cluster, beginning with the smallest, and the others."""
    batches: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        batches.setdefault((row.placed.workload, row.placed.cluster), []).append(row.placed.batch)
    places = {pair: {batch: n for n, batch in enumerate(sorted(set(each)))} for pair, each in batches.items()}
    fitted = [places[row.placed.workload, row.placed.cluster][row.placed.batch] % 2 == 0 for row in rows]
    return _keep_fittable([_split(rows, fitted)])


def _split(rows: Sequence[TimedStep], fitted: Sequence[bool]) -> Fold:
    train = [row for row, yes in zip(rows, fitted, strict=True) if yes]
    return train, [row for row, yes in zip(rows, fitted, strict=True) if not yes]


def _keep_fittable(folds: Iterable[Fold]) -> list[Fold]:
    """Folds with rows to fit to and rows to predict."""
    return [fold for each in folds if all(fold := _keep_workloads(*each))]


def find_fittable(rows: Iterable[TimedStep]) -> set[str]:
    """Workloads whose compute time is known: measured on one GPU, or with ``sync_s``."""
    return {row.placed.workload for row in rows if row.sync_s is not None or sum(row.placed.gpus) == 1}


def _keep_workloads(train: Sequence[TimedStep], test: Sequence[TimedStep]) -> Fold:
    known = find_fittable(train)
    train = [row for row in train if row.placed.workload in known]
    return train, [row for row in test if row.placed.workload in known]


class Distance(StrEnum):
    """How a step differs from the measured ones."""

    MEASURED = "measured placement"
    MORE_GPUS = "other placement"
    OTHER_CLUSTER = "other cluster"


SPLITS: Mapping[Distance, Callable[[Sequence[TimedStep]], list[Fold]]] = {
    Distance.MEASURED: split_by_batch,
    Distance.MORE_GPUS: split_by_gpus,
    Distance.OTHER_CLUSTER: split_by_cluster,
}  # which rows are held back to calibrate intervals

# Expected errors, as logarithms; calibration scales them.
_BATCH_ERROR = 0.05  # other batches of a measured placement
_PLACEMENT_ERROR = 0.12
_NODES_ERROR = 0.2  # several nodes of a cluster of which one was measured
_CLUSTER_ERROR = 0.5  # a workload on a cluster where it was not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRange:
    """The measured placements and batches, the most GPUs of each cluster and of all, and clusters of several nodes."""

    placements: Mapping[tuple[str, str], frozenset[Placement]]  # by workload and cluster
    batches: Mapping[tuple[str, str], tuple[float, float]]  # the smallest and the largest
    gpus: Mapping[str, int]
    most_gpus: int
    several: frozenset[str]

    @classmethod
    def find(cls, steps: Sequence[PlacedStep]) -> "MeasuredRange":
        gpus: dict[str, int] = {}
        placements: dict[tuple[str, str], set[Placement]] = {}
        batches: dict[tuple[str, str], tuple[float, float]] = {}
        for step in steps:
            pair = (step.workload, step.cluster)
            low, high = batches.get(pair, (step.batch, step.batch))
            gpus[step.cluster] = max(sum(step.gpus), gpus.get(step.cluster, 0))
            placements.setdefault(pair, set()).add(_sort(step.gpus))
            batches[pair] = (min(low, step.batch), max(high, step.batch))
        return cls(
            placements={pair: frozenset(each) for pair, each in placements.items()},
            batches=batches,
            gpus=gpus,
            most_gpus=max(gpus.values()),
            several=frozenset(step.cluster for step in steps if len(step.gpus) > 1),
        )

    def is_guess(self, step: PlacedStep) -> bool:
        """Whether it has several nodes of a cluster of which one was measured."""
        return len(step.gpus) > 1 and step.cluster in self.gpus and step.cluster not in self.several

    def find_lower_bound(self, step: PlacedStep) -> PlacedStep:
        """A step that is not longer: where the network is a guess, that of the fullest node without the others."""
        full = max(step.gpus)
        return replace(step, gpus=(full,)) if self.is_guess(step) and full <= self.gpus[step.cluster] else step

    def find_distance(self, step: PlacedStep) -> Distance:
        """How a step differs from the measured ones."""
        measured = self.placements.get((step.workload, step.cluster))
        if measured is None:
            return Distance.OTHER_CLUSTER
        return Distance.MEASURED if _sort(step.gpus) in measured else Distance.MORE_GPUS

    def find_width(self, step: PlacedStep) -> float:
        """The expected error of a prediction, larger with each doubling of GPUs outside the measured range."""
        distance, batch_width = self.find_distance(step), self.find_batch_width(step)
        if distance is Distance.MEASURED:
            return batch_width
        doublings = count_doublings(sum(step.gpus), 0, self.gpus.get(step.cluster, self.most_gpus))
        width = batch_width - _BATCH_ERROR + _PLACEMENT_ERROR * (1 + doublings)
        if distance is Distance.OTHER_CLUSTER:
            return width + _CLUSTER_ERROR
        return width + _NODES_ERROR * self.is_guess(step)

    def find_batch_width(self, step: PlacedStep) -> float:
        """The same for a measured placement, larger with each doubling of the batch outside the measured range."""
        low, high = self.batches.get((step.workload, step.cluster), (step.batch, step.batch))
        return _BATCH_ERROR + _PLACEMENT_ERROR * count_doublings(step.batch, low, high)


def _sort(gpus: Placement) -> Placement:
    """The order of nodes does not matter."""
    return tuple(sorted(gpus))
