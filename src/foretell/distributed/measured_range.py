"""How far what was seen of steps reaches, and how far answers beyond it are expected to stray."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from foretell.core.intervals import count_doublings
from foretell.distributed.placed_steps import PlacedStep, Placement, TimedStep

Fold = tuple[Sequence[TimedStep], Sequence[TimedStep]]


def split_by_gpus(rows: Sequence[TimedStep]) -> list[Fold]:
    """Fewer GPUs, and more: beyond a half, and beyond three quarters of the most."""
    most = max(sum(row.placed.gpus) for row in rows)
    bounds = sorted({max(1, most // 2), max(1, most * 3 // 4)})
    folds = [_split(rows, [sum(row.placed.gpus) <= bound for row in rows]) for bound in bounds]
    return _keep_known(folds)


def split_by_cluster(rows: Sequence[TimedStep]) -> list[Fold]:
    """All clusters but one, and that one."""
    names = sorted({row.placed.cluster for row in rows})
    folds = [_split(rows, [row.placed.cluster != name for row in rows]) for name in names]
    return _keep_known(folds)


def split_by_batch(rows: Sequence[TimedStep]) -> list[Fold]:
    """Every other batch of a workload on a cluster, and the rest; all rows of its least batch stay."""
    batches: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        batches.setdefault((row.placed.workload, row.placed.cluster), []).append(row.placed.batch)
    places = {pair: {batch: n for n, batch in enumerate(sorted(set(each)))} for pair, each in batches.items()}
    learned = [places[row.placed.workload, row.placed.cluster][row.placed.batch] % 2 == 0 for row in rows]
    return _keep_known([_split(rows, learned)])


def _split(rows: Sequence[TimedStep], learned: Sequence[bool]) -> Fold:
    train = [row for row, yes in zip(rows, learned, strict=True) if yes]
    return train, [row for row, yes in zip(rows, learned, strict=True) if not yes]


def _keep_known(folds: Iterable[Fold]) -> list[Fold]:
    """Folds with what can be learned and asked."""
    return [fold for each in folds if all(fold := _keep_workloads(*each))]


def find_learnable(rows: Iterable[TimedStep]) -> set[str]:
    """Workloads of which it is known what computing takes: of one GPU, or without its waiting."""
    return {row.placed.workload for row in rows if row.sync_s is not None or sum(row.placed.gpus) == 1}


def _keep_workloads(train: Sequence[TimedStep], test: Sequence[TimedStep]) -> Fold:
    known = find_learnable(train)
    train = [row for row in train if row.placed.workload in known]
    return train, [row for row in test if row.placed.workload in known]


SPLITS: Mapping[str, Callable[[Sequence[TimedStep]], list[Fold]]] = {
    "seen": split_by_batch,
    "more": split_by_gpus,
    "new": split_by_cluster,
}  # what is left out of rows, by what is asked for

# How far answers are expected to stray, in logs, until rows that were left out tell.
_SEEN_STRAY = 0.05  # other batches of a placement that was seen
_USUAL_STRAY = 0.12
_NODES_STRAY = 0.2  # several nodes, where all that was seen of a cluster is one
_PAIR_STRAY = 0.5  # a workload on a cluster where it was never seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far what was seen reaches: the most GPUs of each cluster and of all, and clusters of several nodes."""

    placements: Mapping[tuple[str, str], frozenset[Placement]]  # of workloads on clusters
    batches: Mapping[tuple[str, str], tuple[float, float]]  # the least and the largest of these
    gpus: Mapping[str, int]
    most_gpus: int
    several: frozenset[str]

    @classmethod
    def find(cls, steps: Sequence[PlacedStep]) -> "Reach":
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
        """Whether it needs several nodes of a cluster of which one was seen."""
        return len(step.gpus) > 1 and step.cluster in self.gpus and step.cluster not in self.several

    def find_least(self, step: PlacedStep) -> PlacedStep:
        """A step that is not longer: where a network is a guess, nodes are no faster than the fullest one alone."""
        full = max(step.gpus)
        return replace(step, gpus=(full,)) if self.is_guess(step) and full <= self.gpus[step.cluster] else step

    def find_kind(self, step: PlacedStep) -> str:
        """Which of ``SPLITS`` leaves out what is asked for here."""
        seen = self.placements.get((step.workload, step.cluster))
        if seen is None:
            return "new"
        return "seen" if _sort(step.gpus) in seen else "more"

    def find_width(self, step: PlacedStep) -> float:
        """How far an answer is expected to stray: with each doubling beyond what was seen, if powers are wrong."""
        kind, far = self.find_kind(step), self.find_batch_width(step)
        if kind == "seen":
            return far
        beyond = count_doublings(sum(step.gpus), 0, self.gpus.get(step.cluster, self.most_gpus))
        width = far - _SEEN_STRAY + _USUAL_STRAY * (1 + beyond)
        if kind == "new":
            return width + _PAIR_STRAY
        return width + _NODES_STRAY * self.is_guess(step)

    def find_batch_width(self, step: PlacedStep) -> float:
        """The same for a placement that was seen: with each doubling of the batch beyond those that were."""
        low, high = self.batches.get((step.workload, step.cluster), (step.batch, step.batch))
        return _SEEN_STRAY + _USUAL_STRAY * count_doublings(step.batch, low, high)


def _sort(gpus: Placement) -> Placement:
    """Nodes in any order are the same."""
    return tuple(sorted(gpus))
