"""Predicts four networks on a link that was not measured, then trains and observes them."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from lab.links import open_links
from lab.training_group import TrainingGroup, open_group
from lab.training_jobs import TrainedNetwork, TrainingJob
from matplotlib.figure import Figure as Canvas

import benchmarks.step_networks as networks
from foretell import learn_device, observe, predict_consumption
from foretell.core.observation import Metric, Observation, Resource, Series
from foretell.core.units import parse_rate
from foretell.distributed.consumption import ConsumptionPrediction, Setting

SETTING = Setting(workers=2, link_bytes_per_s=parse_rate("350Mb"))
HERE = "core"  # of this machine
LEARNING_S = 240.0  # to learn it from random networks
BATCHES = {"small ResNet": 32, "VGG-like": 16, "tiny ViT": 32, "tiny GPT": 16}
RESOURCES = (Resource.COMPUTE, Resource.TRANSMIT, Resource.RECEIVE)
SECONDS = 8.0
ROUNDS = 3  # trainings of each network, of which the median counts
SAMPLED_S = 0.01
SHOWN = 5  # iterations in the plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of one network, predicted and observed; ``None`` where most rounds have no cycle."""

    network: str
    resource: str
    metric: str
    predicted: float
    low: float
    high: float
    observed: float | None

    @property
    def error(self) -> float | None:
        """In per cent."""
        return None if self.observed is None else 100 * abs(self.predicted - self.observed) / self.observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The prediction of a network, and the observation of each round."""

    name: str
    prediction: ConsumptionPrediction
    observations: tuple[Observation, ...]


def train_networks(device: str | None = None) -> list[Trained]:
    """Predict all networks on a device, by default this machine's core, which is learned first; then train them."""
    with tempfile.TemporaryDirectory() as folder:
        if device is None:
            learn_device(name=HERE, budget_s=LEARNING_S, folder=Path(folder))
        setting = replace(SETTING, device=device or HERE)
        predictions = {name: _predict(name, setting, Path(folder)) for name in BATCHES}
    with open_links(SETTING.workers) as links, open_group(links) as group:
        rounds = [{name: _train(name, group) for name in BATCHES} for _ in range(ROUNDS)]
    return [
        Trained(name=name, prediction=predictions[name], observations=tuple(each[name] for each in rounds))
        for name in BATCHES
    ]


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
        observed = observe(pids=[group.start(job)], interval_s=SAMPLED_S, store=kept / "store.db", folder=kept)
        trained = group.finish(job)
    begin = trained.began_s[0] - observed.recorded.started_s
    series = {name: _after(each, begin) for name, each in observed.recorded.series.items()}
    return replace(observed, recorded=replace(observed.recorded, series=series))


def _after(series: Series, begin: float) -> Series:
    first = int(np.searchsorted(series.times_s, begin))
    return Series(times_s=series.times_s[first:] - begin, values=series.values[first:])


def _find_source(name: str) -> str:
    return f"{networks.__file__}:{networks.CASES[name].build.__name__}"


def compare(trained: Sequence[Trained]) -> list[Compared]:
    """Every figure of every network."""
    rows = []
    for each in trained:
        periods = [observed.period_s for observed in each.observations]
        rows.append(_compare(each.name, "iteration", "s", each.prediction.iteration, periods))
        for resource in RESOURCES:
            found = [observed.cycles.get(resource) for observed in each.observations]
            cycles = [search.cycle if search else None for search in found]
            for metric in Metric:
                estimate = getattr(each.prediction.cycles[resource], metric)
                values = [None if cycle is None else float(getattr(cycle, metric)) for cycle in cycles]
                rows.append(_compare(each.name, resource.value, metric.value, estimate, values))
    return rows


def _compare(network: str, resource: str, metric: str, estimate: Any, rounds: Sequence[float | None]) -> Compared:
    known = [value for value in rounds if value is not None]
    return Compared(
        network=network,
        resource=resource,
        metric=metric,
        predicted=float(estimate.value),
        low=float(estimate.low),
        high=float(estimate.high),
        observed=float(np.median(known)) if 2 * len(known) > len(rounds) else None,
    )


def summarise(rows: Sequence[Compared], trained: Sequence[Trained]) -> dict[str, Any]:
    """Mean errors of each resource, the figures inside their intervals, and the load of the machine."""
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
        "others": {each.name: max(one.recorded.load.others for one in each.observations) for each in trained},
        "stolen": {each.name: max(one.recorded.load.stolen for one in each.observations) for each in trained},
    }


def record(rows: Sequence[Compared], about: dict[str, Any]) -> dict[str, Any]:
    """As JSON."""
    return {**about, "rows": [asdict(row) for row in rows]}


def plot(trained: Sequence[Trained], path: Path) -> None:
    """Some observed iterations of each network, and its predicted bursts."""
    canvas = Canvas(figsize=(12, 2.2 * len(trained)), layout="constrained")
    axes = canvas.subplots(len(trained), 2, squeeze=False)
    for row, each in zip(axes, trained, strict=True):
        shown = (Resource.COMPUTE, "cores", 1.0), (Resource.TRANSMIT, "sent, MB/s", 1e6)
        for place, (resource, unit, scale) in zip(row, shown, strict=True):
            _draw(place, each, resource, unit, scale)
    axes[0][1].legend(loc="upper right", fontsize=8)
    canvas.savefig(path, dpi=130)


def _draw(place: Any, each: Trained, resource: Resource, unit: str, scale: float) -> None:
    series, cycle = each.observations[0].recorded.series[resource], each.prediction.cycles[resource]
    until = SHOWN * each.prediction.iteration.value
    kept = series.times_s[:-1] < until
    place.stairs(series.values[kept] / scale, series.times_s[: int(kept.sum()) + 1], label="observed", color="tab:blue")
    begin = _find_begin(series, cycle.burst_amount.value)
    begins = np.arange(begin, until, cycle.burst_s.value + cycle.idle_s.value)
    for number, start in enumerate(begins.tolist()):
        ends, height = [start, start + cycle.burst_s.value], cycle.burst_amount.value / scale
        place.fill_between(
            ends, height, alpha=0.3, color="tab:orange", lw=0, label="predicted" if number == 0 else None
        )
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
