"""Steps of data-parallel training on other GPUs than they were measured on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from foretell.apps.placed import read_steps
from foretell.apps.tables import read_table
from foretell.entities.device import Device
from foretell.entities.placed import PlacedPrediction, PlacedStep, Placement, TimedStep
from foretell.errors import Mistake, NotFoundError, SpecError
from foretell.machines import devices

__all__ = ["predict_placements"]

_BEYOND = 2  # times the GPUs that were measured: what is told where nobody says which


def predict_placements(
    source: str | Path | pd.DataFrame,
    *,
    placements: Sequence[Placement] = (),
    workload: str | None = None,
    cluster: str | None = None,
    batch: float | None = None,
    device: str | None = None,
    link_bytes_per_s: float | None = None,
    level: float = 0.9,
) -> list[PlacedPrediction]:
    """What a step takes on each placement, the GPUs of each node, learned from a table of measured steps.

    Without ``placements``: from one GPU by doublings to twice as many as were measured. Without ``batch``: the largest
    that was measured. ``workload`` and ``cluster`` may be left out where the table has one only. A cluster that is not
    in the table is told by its ``device`` and ``link_bytes_per_s``.

    Raises:
        ImportDataError: The table cannot be read or learned from.
        NotFoundError: No such workload was measured, or there is no such device.
        SpecError: A workload, a cluster or a placement has to be named.
    """
    from foretell.predictor.placed import PlacedPredictor

    rows = read_steps(
        source if isinstance(source, pd.DataFrame) else read_table(Path(source)), find_device=devices.find_device
    )
    named = _choose_name("workload", workload, [row.placed.workload for row in rows])
    where = _choose_name("cluster", cluster, [row.placed.cluster for row in rows])
    own = _list_own(rows, named, where)
    like = next((row.placed for row in rows if row.placed.cluster == where), None)
    size = max(row.placed.batch for row in own) if batch is None else batch
    _check(size, placements)
    steps = [
        PlacedStep(
            workload=named,
            cluster=where,
            batch=size,
            gpus=each,
            device=_choose_device(device, like),
            link_bytes_per_s=link_bytes_per_s or (like.link_bytes_per_s if like else None),
        )
        for each in placements or _list_usual(rows, where)
    ]
    return PlacedPredictor.fit(rows, workload=named, cluster=where).predict(steps, level=level)


def _choose_name(kind: str, name: str | None, seen: Iterable[str]) -> str:
    known = sorted(set(seen))
    if name is None and len(known) != 1:
        expected = f"one of {', '.join(known)}" if known else "a table with rows"
        raise SpecError("placements", [Mistake(place=kind, found="none named", expected=expected)])
    return known[0] if name is None else name


def _list_own(rows: Sequence[TimedStep], workload: str, cluster: str) -> list[TimedStep]:
    """Those of the workload: on the cluster if there are any, otherwise anywhere."""
    anywhere = [row for row in rows if row.placed.workload == workload]
    if not anywhere:
        known = sorted({row.placed.workload for row in rows})
        raise NotFoundError("workload", workload, known=known, hint="Measure steps of it first.")
    return [row for row in anywhere if row.placed.cluster == cluster] or anywhere


def _choose_device(name: str | None, like: PlacedStep | None) -> Device | None:
    if name is not None:
        return devices.get_device(name)
    return like.device if like else None


def _check(batch: float, placements: Sequence[Placement]) -> None:
    mistakes = [
        Mistake(place="gpus", found=str(each), expected="one or more on each node")
        for each in placements
        if not each or min(each) < 1
    ]
    if not batch > 0:
        mistakes.append(Mistake(place="batch", found=f"{batch:g}", expected="a number above 0"))
    if mistakes:
        raise SpecError("placements", mistakes)


def _list_usual(rows: Sequence[TimedStep], cluster: str) -> Iterable[Placement]:
    """By doublings: within a node until it is full, then nodes."""
    here = [row.placed.gpus for row in rows if row.placed.cluster == cluster] or [row.placed.gpus for row in rows]
    full, most = max(map(max, here)), _BEYOND * max(map(sum, here))
    count = 1
    while count < full:
        yield (count,)
        count *= 2
    nodes = 1
    while nodes * full <= most:
        yield (full,) * nodes
        nodes *= 2
