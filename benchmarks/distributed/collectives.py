"""Times of collectives: predicted for devices that were left out, and from a device's own curves; fits what ships."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.distributed.collective_fits import build_curves, find_spread, fit_law, predict_rows
from benchmarks.distributed.collective_rows import CollectiveRow, read_rows
from benchmarks.distributed.network_rows import read_published
from benchmarks.gpus.results import Result, judge
from foretell.core.model_files import save_model
from foretell.core.workload import Floats
from foretell.distributed.collective_curves import Evidence
from foretell.distributed.collective_times import LARGE, SHIPPED, CollectiveModel, CollectiveTimes, load_shipped

_GOAL = 15.0  # per cent, messages of 1 MiB and more on devices that were left out
_SEED = 20260101
_VALUE = 1.645  # of a normal distribution, for 90 % intervals
_UNKNOWN_NETWORK = "A100-80"  # in rows of vidur
_NETWORK_SPREAD = 0.2  # of what networks reach of their rate: 0.6 to 0.95 in about 90 % of clusters; not fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A row with its prediction by a model that was not fitted to it."""

    row: CollectiveRow
    seconds: float
    evidence: Evidence

    @property
    def error(self) -> float:
        """As a logarithm."""
        return float(np.log(self.seconds / self.row.seconds))

    @property
    def is_large(self) -> bool:
        return self.row.bytes_ >= LARGE


def judge_collectives(devices: Sequence[str] = ()) -> list[Result]:
    """Errors by operation and size; by device; of a device's own curves; between nodes."""
    rows = read_rows()
    left_out = [held for held in leave_out(rows, _get_device) if not devices or held.row.device in devices]
    generations = [held for held in leave_out(rows, _get_architecture) if not devices or held.row.device in devices]
    own = [held for held in hold_out_sizes(rows) if not devices or held.row.device in devices]
    crossing = [held for held in predict_crossing(rows) if not devices or held.row.device in devices]
    return [
        *_judge_sizes("collectives, device left out", left_out, goal=_GOAL),
        *_judge_groups("collectives, device left out, 1 MiB+", left_out),
        *_judge_sizes("collectives, generation left out", generations),
        *_judge_sizes("collectives, own curves, half of the sizes", own),
        *_judge_crossing("collectives, between nodes, not fitted, 1 MiB+", crossing),
    ]


def write_collective_weights() -> None:
    """Fit what ships to all rows, with spreads of errors on rows that were held out."""
    rows = read_rows()
    fitted = fit_law(rows)
    model = CollectiveModel(fitted.law, build_curves(rows, fitted), find_spreads(rows))
    facts = {"rows": len(rows), "sources": sorted({row.source for row in rows})}
    save_model(SHIPPED, model, facts)


def find_spreads(rows: Sequence[CollectiveRow]) -> dict[str, float]:
    """By evidence and size: of sizes held out, of devices with others of their kind, of generations.

    Between nodes too few rows are of known networks: there, ``_NETWORK_SPREAD`` is added to that of figures.
    """
    held = [
        *hold_out_sizes(rows),
        *(each for each in leave_out(rows, _get_device) if each.evidence is Evidence.SIMILAR),
        *leave_out(rows, _get_architecture),
    ]
    found = {}
    for size, large in (("", True), (" small", False)):
        for evidence in (Evidence.MEASURED, Evidence.SIMILAR, Evidence.FIGURES):
            some = [each.error for each in held if (each.evidence, each.is_large) == (evidence, large)]
            found[f"{evidence}{size}"] = find_spread(np.array(some))
        found[f"{Evidence.NETWORK}{size}"] = float(np.hypot(found[f"{Evidence.FIGURES}{size}"], _NETWORK_SPREAD))
    return found


def leave_out(rows: Sequence[CollectiveRow], name: Callable[[CollectiveRow], str]) -> Iterable[HeldOut]:
    """Rows within nodes, each predicted without those of the same name."""
    rows = [row for row in rows if not row.crosses]
    for left in dict.fromkeys(map(name, rows)):
        yield from _predict_held_out(
            [row for row in rows if name(row) != left], [row for row in rows if name(row) == left]
        )


def hold_out_sizes(rows: Sequence[CollectiveRow]) -> Iterable[HeldOut]:
    """A random half of the rows within nodes, predicted by the other half."""
    rows = [row for row in rows if not row.crosses and not row.topology.link_bytes]
    kept = np.random.default_rng(_SEED).random(len(rows)) < 0.5
    train = [row for row, keep in zip(rows, kept, strict=True) if keep]
    yield from _predict_held_out(train, [row for row, keep in zip(rows, kept, strict=True) if not keep])


def predict_crossing(rows: Sequence[CollectiveRow]) -> Iterable[HeldOut]:
    """Rows between nodes, to which nothing is fitted."""
    yield from _predict_held_out(rows, [*(row for row in rows if row.crosses), *read_published()])


def _predict_held_out(train: Sequence[CollectiveRow], held: Sequence[CollectiveRow]) -> Iterable[HeldOut]:
    fitted = fit_law(train)
    model = CollectiveModel(fitted.law, build_curves(train, fitted))
    times = CollectiveTimes(model)
    for row, seconds in zip(held, predict_rows(held, model, fitted.added_s), strict=True):
        evidence = times.find_evidence(row.operation, row.group, row.topology)
        yield HeldOut(row=row, seconds=float(seconds), evidence=evidence)


def _judge_sizes(what: str, held: Sequence[HeldOut], *, goal: float | None = None) -> Iterable[Result]:
    """All messages and large ones together; large ones by operation."""
    large = [each for each in held if each.is_large]
    operations = dict.fromkeys(str(each.row.operation) for each in large)
    yield from _judge(what, "1 MiB and more", large, among=large, goal=goal)
    yield from _judge(what, "16 MiB and more", [each for each in held if each.row.bytes_ >= 16 * LARGE], among=large)
    yield from _judge(what, "all sizes", held, among=held)
    for name in operations:
        of_operation = [each for each in large if each.row.operation == name]
        yield from _judge(what, f"{name}, 1 MiB and more", of_operation, among=large, goal=goal)


def _judge_groups(what: str, held: Sequence[HeldOut]) -> Iterable[Result]:
    large = [each for each in held if each.is_large]
    for device, source in dict.fromkeys((each.row.device, each.row.source) for each in large):
        some = [each for each in large if (each.row.device, each.row.source) == (device, source)]
        yield from _judge(what, f"{device}, {source}", some, among=large, note=f"by {some[0].evidence}")


def _judge_crossing(what: str, held: Sequence[HeldOut]) -> Iterable[Result]:
    """By source and operation, with the intervals that ship."""
    names = [f"{each.row.device}, {each.row.source}, {each.row.operation}" for each in held]
    for name in dict.fromkeys(names):
        some = [each for each, other in zip(held, names, strict=True) if other == name and each.is_large]
        known = some[0].row.device != _UNKNOWN_NETWORK
        rate = f"{some[0].row.topology.network_bytes_per_s * 8e-9:g} Gb/s a GPU"
        yield from _judge(what, name, some, among=some, note=rate if known else f"network unknown, taken as {rate}")


def _judge(
    what: str,
    group: str,
    held: Sequence[HeldOut],
    *,
    among: Sequence[HeldOut],
    goal: float | None = None,
    note: str = "",
) -> Iterable[Result]:
    if not held:
        return
    spreads = _find_spreads_of_others(among)
    widths = np.array([_VALUE * spreads[_name_errors(each)] for each in held])
    errors = np.array([each.error for each in held])
    yield judge(
        what,
        group,
        [each.seconds for each in held],
        [each.row.seconds for each in held],
        most=goal,
        inside=float(100 * (np.abs(errors) <= widths).mean()),
        width=float(100 * (np.exp(widths) - np.exp(-widths)).mean()),
        note=note,
    )


def _find_spreads_of_others(held: Sequence[HeldOut]) -> dict[tuple[str, Evidence, bool], float]:
    """For each device, the spread of the errors of the other devices."""
    names = [_name_errors(each) for each in held]
    errors: Floats = np.array([each.error for each in held])
    found = {}
    for name in dict.fromkeys(names):
        if name[1] is Evidence.NETWORK:
            found[name] = load_shipped().spreads["network" if name[2] else "network small"]
            continue
        others = np.array([other[0] != name[0] and other[1:] == name[1:] for other in names])
        found[name] = find_spread(errors[others] if others.any() else errors)
    return found


def _name_errors(held: HeldOut) -> tuple[str, Evidence, bool]:
    return held.row.device, held.evidence, held.is_large


def _get_device(row: CollectiveRow) -> str:
    return row.device


def _get_architecture(row: CollectiveRow) -> str:
    return row.topology.device.architecture


if __name__ == "__main__":
    write_collective_weights()
