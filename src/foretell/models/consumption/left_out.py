"""What is left out of measured steps, to learn how well it is told: more GPUs, clusters, batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from foretell.entities.placed import TimedStep

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
