"""Computes what jobs cost, and what smaller requests would have cost.

At best: each job with the cores that it kept busy on average, rounded up, and the memory that it used with a margin.
That is known only afterwards, so it is a bound. One request: for all jobs of an application with the same partition,
nodes, cores and GPUs, the cores and the memory that would have been enough for 95 % of them. A job that needed more
cores takes proportionally longer; one that needed more memory pays for a failed attempt, and for a second one with its
original memory. If that costs more than what was paid, or there are fewer than 20 jobs, what was paid is used.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import Mistake, SpecError
from foretell.core.past_jobs import Waste, WasteReport
from foretell.core.prices import SECONDS_PER_HOUR, Tariff
from foretell.core.run import State
from foretell.core.site import NodeType, Site

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

COLUMNS = (
    "elapsed_s", "limit_s", "nodes", "cores", "gpus", "memory_bytes", "cpu_s", "peak_memory_bytes", "state",
    "user", "account", "app", "partition",
)  # fmt: skip
GROUPS = ("user", "account", "app", "partition")
ENOUGH = 0.95  # of an application's jobs, for its single request
MARGIN = 1.1  # over the measured memory: accounting samples every 30 seconds and misses peaks
_LEAST_JOBS = 20  # from which a single request can be learned
_UNKNOWN_NAME = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """What jobs have of each of their nodes, and for how long."""

    cores: Floats
    memory_bytes: Floats
    elapsed_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    had: _Size
    needed: _Size
    nodes: Floats
    gpus: Floats
    partition: NDArray[Any]


def find_waste(columns: Mapping[str, NDArray[Any]], *, by: str, site: Site | None = None) -> WasteReport:
    """Return the waste of jobs, given as :data:`COLUMNS`, by one of :data:`GROUPS`.

    Raises:
        SpecError: if there is no such group.
    """
    if by not in GROUPS:
        raise SpecError("options", [Mistake(place="--by", found=repr(by), expected=f"one of {', '.join(GROUPS)}")])
    jobs = _read_jobs(columns)
    bill = _Bill(site)
    paid, at_best = bill.price(jobs, jobs.had), bill.price(jobs, jobs.needed)
    costs = {
        "paid": paid,
        "lost": np.where(columns["state"] == State.COMPLETED.value, 0.0, paid),
        "one_request": _price_one_request(jobs, columns["app"], paid, bill),
        "at_best": np.minimum(paid, at_best),
    }
    every = np.arange(len(paid))
    rows = [_sum_up(name, columns, costs, rows) for name, rows in _list_groups(columns[by])]
    return WasteReport(
        by=by,
        total=_sum_up("all", columns, costs, every),
        rows=tuple(sorted(rows, key=lambda row: (-row.paid, -row.core_hours, row.name))),
        currency=site.currency if site and bill.has_prices else "",
        site=site.name if site else "",
        unpriced=dict(bill.count_unpriced(jobs.partition)),
        unmeasured_memory=int(np.isnan(columns["peak_memory_bytes"]).sum()),
    )


def _list_groups(names: NDArray[Any]) -> Iterator[tuple[str, Codes]]:
    found, codes = np.unique(names.astype(str), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    for name, rows in zip(found, np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=True):
        yield str(name) or _UNKNOWN_NAME, rows


def _read_jobs(columns: Mapping[str, NDArray[Any]]) -> _Jobs:
    """Return what each job had of a node, and what of that it needed; all of it if that is unknown."""
    nodes, elapsed = columns["nodes"], columns["elapsed_s"]
    had = _Size(
        cores=np.ceil(columns["cores"] / nodes), memory_bytes=columns["memory_bytes"] / nodes, elapsed_s=elapsed
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        busy = np.ceil(columns["cpu_s"] / elapsed / nodes)
    cores = np.where(np.isfinite(busy), np.clip(busy, 1, had.cores), had.cores)
    used = MARGIN * columns["peak_memory_bytes"]
    stopped = columns["state"] == State.OUT_OF_MEMORY.value
    memory = np.where(np.isnan(used) | stopped, had.memory_bytes, np.fmin(used, had.memory_bytes))
    return _Jobs(
        had=had,
        needed=_Size(cores=cores, memory_bytes=memory, elapsed_s=elapsed),
        nodes=nodes,
        gpus=np.ceil(columns["gpus"] / nodes),
        partition=columns["partition"],
    )


def _price_one_request(jobs: _Jobs, apps: NDArray[Any], paid: Floats, bill: "_Bill") -> Floats:
    """Return the price of each job if all similar jobs had made the same request."""
    shapes = [np.unique(one.astype(str), return_inverse=True)[1] for one in (apps, jobs.partition)]
    shape = np.stack([*shapes, *(one.astype(np.intp) for one in (jobs.nodes, jobs.had.cores, jobs.gpus))], axis=1)
    kinds = np.unique(shape, axis=0, return_inverse=True)[1].reshape(-1)
    request = _Size(
        cores=_find_enough(jobs.needed.cores, kinds),
        memory_bytes=_find_enough(jobs.needed.memory_bytes, kinds),
        elapsed_s=jobs.had.elapsed_s,
    )
    slower = replace(request, elapsed_s=request.elapsed_s * np.maximum(1, jobs.needed.cores / request.cores))
    again = replace(slower, memory_bytes=np.fmax(jobs.had.memory_bytes, request.memory_bytes))
    too_small = jobs.needed.memory_bytes > request.memory_bytes
    costs = bill.price(jobs, slower) + np.where(too_small, bill.price(jobs, again), 0.0)
    totals, were = np.bincount(kinds, weights=costs), np.bincount(kinds, weights=paid)
    return np.where(((totals < were) & (np.bincount(kinds) >= _LEAST_JOBS))[kinds], costs, paid)


def _find_enough(needs: Floats, kinds: Codes) -> Floats:
    """Return what would have been enough for 95 % of the jobs of each kind; ``nan`` if unknown for all of them."""
    order = np.lexsort((needs, kinds))
    known = np.bincount(kinds, weights=~np.isnan(needs)).astype(np.intp)
    begins = np.concatenate([[0], np.cumsum(np.bincount(kinds))[:-1]])
    places = begins + np.maximum(np.ceil(ENOUGH * known).astype(np.intp) - 1, 0)
    return np.asarray(needs[order][places][kinds])  # unknown values are sorted last


class _Bill:
    """The prices of jobs at a site, or their core-hours."""

    def __init__(self, site: Site | None) -> None:
        self._site = site
        self.has_prices = site is not None and site.has_prices

    def price(self, jobs: _Jobs, size: _Size) -> Floats:
        if not self.has_prices:
            return size.cores * jobs.nodes * size.elapsed_s / SECONDS_PER_HOUR
        costs = np.zeros(len(jobs.nodes))
        for name, rows in _list_groups(jobs.partition):
            node = self._find(name)
            if node is not None:
                hourly = Tariff.of([node]).price_per_hour(
                    nodes=jobs.nodes[rows],
                    cores=size.cores[rows],
                    gpus=jobs.gpus[rows],
                    memory_bytes=np.nan_to_num(size.memory_bytes[rows]),
                )
                costs[rows] = hourly * size.elapsed_s[rows] / SECONDS_PER_HOUR
        return costs

    def count_unpriced(self, partitions: NDArray[Any]) -> Counter[str]:
        if not self.has_prices:
            return Counter()
        return Counter({name: len(rows) for name, rows in _list_groups(partitions) if self._find(name) is None})

    def _find(self, partition: str) -> NodeType | None:
        assert self._site is not None
        return self._site.find_node_type(partition)


def _sum_up(name: str, columns: Mapping[str, NDArray[Any]], costs: Mapping[str, Floats], rows: Codes) -> Waste:
    elapsed, cores, nodes = (columns[one][rows] for one in ("elapsed_s", "cores", "nodes"))
    completed = columns["state"][rows] == State.COMPLETED.value
    limits = columns["limit_s"][rows][completed & (elapsed > 0)] / elapsed[completed & (elapsed > 0)]
    memory = columns["memory_bytes"][rows] * elapsed
    return Waste(
        name=name,
        jobs=len(rows),
        completed=int(completed.sum()),
        core_hours=float((cores * elapsed).sum() / SECONDS_PER_HOUR),
        gpu_hours=float((columns["gpus"][rows] * elapsed).sum() / SECONDS_PER_HOUR),
        time_ratio=None if np.isnan(limits).all() else float(np.nanmedian(limits)),
        cpu_used=_share(columns["cpu_s"][rows], cores * elapsed),
        memory_used=_share(columns["peak_memory_bytes"][rows] * nodes * elapsed, memory),
        **{cost: float(values[rows].sum()) for cost, values in costs.items()},
    )


def _share(used: Floats, had: Floats) -> float | None:
    """Return the used share, over jobs for which both are known."""
    known = np.isfinite(used) & np.isfinite(had) & (had > 0)
    return float(used[known].sum() / had[known].sum()) if known.any() else None
