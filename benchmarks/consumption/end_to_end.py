"""Four networks and a link that nothing was learned from: told first, then trained for real and observed."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

import benchmarks.step_networks as networks
from foretell import learn_device, observe, predict_consumption
from foretell.core.cycles import Metric, Resource, Series
from foretell.core.observation import Observation
from foretell.core.units import parse_rate
from foretell.distributed.consumption import ConsumptionPrediction, Setting
from foretell.distributed.links import open_links
from foretell.distributed.training_group import TrainingGroup, open_group
from foretell.distributed.training_jobs import TrainedNetwork, TrainingJob

SETTING = Setting(workers=2, link_bytes_per_s=parse_rate("350Mb"))
HERE = "core"  # the one at hand
LEARNING_S = 240.0  # for which it is learned, from random networks
BATCHES = {"small ResNet": 32, "VGG-like": 16, "tiny ViT": 32, "tiny GPT": 16}
RESOURCES = (Resource.COMPUTE, Resource.TRANSMIT, Resource.RECEIVE)
SECONDS = 8.0
ROUNDS = 3  # times that each network is trained; what counts is the median
SAMPLED_S = 0.01
SHOWN = 5  # iterations in the picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One figure of one network: told, and observed; nothing where most rounds showed no cycle."""

    network: str
    resource: str
    metric: str
    told: float
    low: float
    high: float
    observed: float | None

    @property
    def error(self) -> float | None:
        """In per cent."""
        return None if self.observed is None else 100 * abs(self.told - self.observed) / self.observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A network: what was told, and what was seen in each round."""

    name: str
    told: ConsumptionPrediction
    seen: tuple[Observation, ...]


def try_networks(device: str | None = None) -> list[Tried]:
    """All are told before the first is trained; as if on a device, or on the core at hand, which is learned first."""
    with tempfile.TemporaryDirectory() as folder:
        if device is None:
            learn_device(name=HERE, budget_s=LEARNING_S, folder=Path(folder))
        setting = replace(SETTING, device=device or HERE)
        told = {name: _predict(name, setting, Path(folder)) for name in BATCHES}
    with open_links(SETTING.workers) as links, open_group(links) as group:
        rounds = [{name: _train(name, group) for name in BATCHES} for _ in range(ROUNDS)]
    return [Tried(name=name, told=told[name], seen=tuple(each[name] for each in rounds)) for name in BATCHES]


def _predict(name: str, setting: Setting, folder: Path) -> ConsumptionPrediction:
    case = networks.CASES[name]
    return predict_consumption(
        _find_source(name),
        [case.input],
        settings=[setting],
        batches=[BATCHES[name]],
        options=case.options,
        folder=folder,
    )[0]


def _train(name: str, group: TrainingGroup) -> Observation:
    case = networks.CASES[name]
    network = TrainedNetwork(source=_find_source(name), inputs=(str(case.input),), optimizer=case.options.optimizer)
    job = TrainingJob(network=network, batch=BATCHES[name], setting=SETTING, seconds=SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder)
        seen = observe(pids=[group.start(job)], interval_s=SAMPLED_S, store=kept / "store.db", folder=kept)
        trained = group.finish(job)
    begin = trained.began_s[0] - seen.recorded.started_s
    series = {name: _after(each, begin) for name, each in seen.recorded.series.items()}
    return replace(seen, recorded=replace(seen.recorded, series=series))


def _after(series: Series, begin: float) -> Series:
    first = int(np.searchsorted(series.times_s, begin))
    return Series(times_s=series.times_s[first:] - begin, values=series.values[first:])


def _find_source(name: str) -> str:
    return f"{networks.__file__}:{networks.CASES[name].build.__name__}"


def hold(tried: Sequence[Tried]) -> list[Held]:
    """Every figure of every network."""
    rows = []
    for each in tried:
        periods = [seen.period_s for seen in each.seen]
        rows.append(_compare(each.name, "iteration", "s", each.told.iteration, periods))
        for resource in RESOURCES:
            cycles = [found.cycle if (found := seen.cycles.get(resource)) else None for seen in each.seen]
            for metric in Metric:
                estimate = getattr(each.told.cycles[resource], metric)
                seen = [None if cycle is None else float(getattr(cycle, metric)) for cycle in cycles]
                rows.append(_compare(each.name, resource.value, metric.value, estimate, seen))
    return rows


def _compare(network: str, resource: str, metric: str, estimate: Any, rounds: Sequence[float | None]) -> Held:
    known = [value for value in rounds if value is not None]
    return Held(
        network=network,
        resource=resource,
        metric=metric,
        told=float(estimate.value),
        low=float(estimate.low),
        high=float(estimate.high),
        observed=float(np.median(known)) if 2 * len(known) > len(rounds) else None,
    )


def summarise(rows: Sequence[Held], tried: Sequence[Tried]) -> dict[str, Any]:
    """Mean errors by resource, how many lie inside their bounds, and what the machine did meanwhile."""
    known = [row for row in rows if row.observed is not None]
    return {
        "errors": {
            name: float(np.mean([row.error for row in known if row.resource == name and row.error is not None]))
            for name in dict.fromkeys(row.resource for row in known)
        },
        "inside": sum(row.low <= (row.observed or 0.0) <= row.high for row in known),
        "figures": len(known),
        "without_cycle": len(rows) - len(known),
        "rounds": ROUNDS,
        "others": {each.name: max(seen.recorded.load.others for seen in each.seen) for each in tried},
        "stolen": {each.name: max(seen.recorded.load.stolen for seen in each.seen) for each in tried},
    }


def record(rows: Sequence[Held], about: dict[str, Any]) -> dict[str, Any]:
    """For programs."""
    return {**about, "rows": [asdict(row) for row in rows]}


def plot(tried: Sequence[Tried], path: Path) -> None:
    """Some iterations of each network: what was observed, and the bursts that were told for it."""
    canvas = Canvas(figsize=(12, 2.2 * len(tried)), layout="constrained")
    axes = canvas.subplots(len(tried), 2, squeeze=False)
    for row, each in zip(axes, tried, strict=True):
        shown = (Resource.COMPUTE, "cores", 1.0), (Resource.TRANSMIT, "sent, MB/s", 1e6)
        for place, (resource, unit, scale) in zip(row, shown, strict=True):
            _draw(place, each, resource, unit, scale)
    axes[0][1].legend(loc="upper right", fontsize=8)
    canvas.savefig(path, dpi=130)


def _draw(place: Any, each: Tried, resource: Resource, unit: str, scale: float) -> None:
    series, told = each.seen[0].recorded.series[resource], each.told.cycles[resource]
    until = SHOWN * each.told.iteration.value
    kept = series.times_s[:-1] < until
    place.stairs(series.values[kept] / scale, series.times_s[: int(kept.sum()) + 1], label="observed", color="tab:blue")
    begin = _find_begin(series, told.burst_amount.value)
    begins = np.arange(begin, until, told.burst_s.value + told.idle_s.value)
    for number, start in enumerate(begins.tolist()):
        ends, height = [start, start + told.burst_s.value], told.burst_amount.value / scale
        place.fill_between(ends, height, alpha=0.3, color="tab:orange", lw=0, label="told" if number == 0 else None)
    place.set_title(f"{each.name}, {resource.value}", fontsize=9, loc="left")
    place.set_ylabel(unit, fontsize=8)
    place.set_xlabel("s", fontsize=8)
    place.tick_params(labelsize=8)
    place.set_xlim(0, until)
    place.set_ylim(bottom=0)


def _find_begin(series: Series, amount: float) -> float:
    """Where the first burst begins."""
    busy = np.flatnonzero(series.values > amount / 2)
    return float(series.times_s[busy[0]]) if len(busy) else 0.0
