"""Steps of data-parallel training on other GPUs than they were measured on."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from foretell.apps.placed import read_steps
from foretell.apps.tables import read_table
from foretell.entities.device import Device
from foretell.entities.placed import PlacedPrediction, PlacedStep, Placement, TimedStep
from foretell.errors import Mistake, NotFoundError, SpecError
from foretell.machines import devices

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
        NotFoundError: No such workload or cluster was measured, or there is no such device.
        SpecError: A workload or a cluster has to be named, or something cannot be.
    """
    from foretell.predictor.placed import PlacedPredictor

    rows = read_steps(
        source if isinstance(source, pd.DataFrame) else read_table(Path(source)), find_device=devices.find_device
    )
    named = _choose_name("workload", workload, [row.placed.workload for row in rows])
    where = _choose_name("cluster", cluster, [row.placed.cluster for row in rows])
    own = _list_own(rows, named, where)
    like = next((row.placed for row in rows if row.placed.cluster == where), None)
    _check_cluster(rows, where, figures=device is not None or link_bytes_per_s is not None)
    size = max(row.placed.batch for row in own) if batch is None else batch
    _check(size, placements, link_bytes_per_s, level)
    steps = [
        PlacedStep(
            workload=named,
            cluster=where,
            batch=size,
            gpus=each,
            device=_choose_device(device, like),
            link_bytes_per_s=link_bytes_per_s or (like.link_bytes_per_s if like else None),
        )
        for each in dict.fromkeys(placements or _list_usual(rows, where))
    ]
    return PlacedPredictor.fit(rows, workload=named, cluster=where).predict(steps, level=level)


def _choose_name(kind: str, name: str | None, seen: Iterable[str]) -> str:
    known = sorted(set(seen))
    if name is None and len(known) != 1:
        expected = f"one of {', '.join(known)}"
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


def _check_cluster(rows: Sequence[TimedStep], cluster: str, *, figures: bool) -> None:
    """A cluster is in the table, or has figures."""
    known = sorted({row.placed.cluster for row in rows})
    if cluster not in known and not figures:
        hint = "Name the device or the link of one that was not measured."
        raise NotFoundError("cluster", cluster, known=known, hint=hint)
    if cluster in known and figures:
        expected = f"none for {cluster}, which the table has; or the name of another cluster"
        raise SpecError("placements", [Mistake(place="device and link", found="given", expected=expected)])


def _check(batch: float, placements: Sequence[Placement], link: float | None, level: float) -> None:
    mistakes = [
        Mistake(place="gpus", found=repr(each), expected="whole numbers from 1, one for each node, such as (8, 8)")
        for each in placements
        if not isinstance(each, tuple) or not each or not all(isinstance(count, int) and count > 0 for count in each)
    ]
    for place, found, right, expected in (
        ("batch", batch, 0 < batch < math.inf, "a finite number above 0"),
        ("link", link, link is None or 0 < link < math.inf, "bytes a second, above 0"),
        ("level", level, 0 < level < 1, "a share above 0 and below 1"),
    ):
        if not right:
            mistakes.append(Mistake(place=place, found=str(found), expected=expected))
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
