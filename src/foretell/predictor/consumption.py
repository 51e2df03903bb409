"""From a training step and a setting to what distributed training consumes, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np

from foretell.entities.consumption import (
    Case,
    ConsumptionPrediction,
    CycleEstimate,
    MeasuredJob,
    Metric,
    Resource,
    Setting,
)
from foretell.entities.device import Device
from foretell.entities.prediction import Estimate
from foretell.entities.units import render_link
from foretell.entities.workload import Floats, Workload
from foretell.errors import NotEnoughRunsError, NotFoundError, StoreError
from foretell.models.consumption.persist import load_model, save_model
from foretell.models.consumption.physics import PhysicsModel
from foretell.models.consumption.targets import TARGETS, read_targets
from foretell.models.operators.roofline import RooflineModel
from foretell.predictor.steps import find_step_model

SUFFIX = ".safetensors"
SHIPPED = "shared"
LEAST_JOBS = 3
_QUANTILES = np.linspace(0.0, 1.0, 101)
_UNSEEN = np.log(1.3)  # wider on either side, where a setting is none of those learned from: nobody can tell
_ITERATION = "iteration"
_REACHED = 0.5  # of a device's public figures, where its times are not known
_LAUNCH_S = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was learned from, to tell when a question lies outside."""

    devices: tuple[str, ...]
    strategies: tuple[str, ...]  # with (a)synchronous
    workers: tuple[int, int]
    servers: tuple[int, int]
    links: tuple[float, float]
    jobs: int

    @classmethod
    def of(cls, jobs: Sequence[MeasuredJob]) -> Self:
        """What jobs cover."""
        settings = [job.setting for job in jobs]
        links = [setting.link_bytes_per_s for setting in settings if setting.link_bytes_per_s] or [0.0]
        return cls(
            devices=tuple(sorted({setting.device for setting in settings})),
            strategies=tuple(sorted({name_strategy(setting) for setting in settings})),
            workers=(min(s.workers for s in settings), max(s.workers for s in settings)),
            servers=(min(s.servers for s in settings), max(s.servers for s in settings)),
            links=(min(links), max(links)),
            jobs=len(jobs),
        )

    def doubt(self, setting: Setting) -> tuple[str, ...]:
        """Plain sentences: where a setting is none of these."""
        doubts = []
        if setting.device not in self.devices:
            doubts.append(
                f"No distributed training on {setting.device} was measured, only on {', '.join(self.devices)}: "
                "what communication costs there is not known, and bounds are wider."
            )
        if name_strategy(setting) not in self.strategies:
            doubts.append(f"No {name_strategy(setting)} training was measured, only {', '.join(self.strategies)}.")
        for word, value, (low, high) in (
            ("workers", setting.workers, self.workers),
            ("servers", setting.servers, self.servers),
        ):
            if value and not low <= value <= high:
                doubts.append(f"{value} {word}: {low} to {high} were measured.")
        link = setting.link_bytes_per_s
        if link is not None and not 0.5 * self.links[0] <= link <= 2 * self.links[1]:
            slowest, fastest = map(render_link, self.links)
            doubts.append(f"A link of {render_link(link)}: {slowest} to {fastest} were measured.")
        return tuple(doubts)


def name_strategy(setting: Setting) -> str:
    """As in sentences."""
    return setting.strategy.value if setting.synchronous else f"asynchronous {setting.strategy.value}"


class ConsumptionPredictor:
    """A model of consumption, with how far it was off on families of networks it had not seen."""

    def __init__(self, model: PhysicsModel, *, spreads: Mapping[str, Floats], known: Known) -> None:
        self.model = model
        self.spreads = dict(spreads)
        self.known = known

    def predict(
        self,
        workload: Workload,
        setting: Setting,
        operator_s: Floats,
        *,
        gpu: bool = False,
        level: float = 0.9,
        notes: Sequence[str] = (),
    ) -> ConsumptionPrediction:
        """What a training consumes; a setting unlike those learned from makes the bounds wider, and is told."""
        foreign = gpu and setting.device not in self.known.devices  # what communication costs a core is not a GPU's
        case = Case(workload=workload, setting=setting, operator_s=operator_s, foreign=foreign)
        told = self.model.predict([case])[0]
        doubts = self.known.doubt(setting)
        wider = _UNSEEN if doubts else 0.0

        def bound(name: str, value: float, most: float = np.inf) -> Estimate:
            low, high = self._find_spread(name, level)
            return Estimate(
                value=min(value, most),
                low=min(value * np.exp(low - wider), most),
                high=min(value * np.exp(high + wider), most),
                level=level,
            )

        cycles = {
            resource: CycleEstimate(
                **{
                    metric.value: bound(
                        _name(resource, metric),
                        told.metrics[resource, metric],
                        _find_most(resource, setting) if metric is Metric.AMOUNT else np.inf,
                    )
                    for metric in Metric
                }
            )
            for resource in Resource
            if (resource, Metric.BURST) in told.metrics
        }
        return ConsumptionPrediction(
            workload=workload,
            setting=setting,
            iteration=bound(_ITERATION, told.iteration_s),
            compute_s=told.compute_s,
            exposed_s=told.exposed_s,
            cycles=cycles,
            gpu=gpu,
            doubts=doubts,
            notes=tuple(notes),
        )

    def _find_spread(self, name: str, level: float) -> tuple[float, float]:
        """Logarithms of the factors between which the truth lies."""
        if name not in self.spreads:
            return -_UNSEEN, _UNSEEN
        low, high = np.interp([(1 - level) / 2, (1 + level) / 2], _QUANTILES, self.spreads[name])
        return min(float(low), 0.0), max(float(high), 0.0)

    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> "ConsumptionPredictor":
        """What was learned, carried to the setting of a few more jobs.

        Raises:
            NotEnoughRunsError: There are too few.
        """
        _check_enough(jobs)
        return ConsumptionPredictor(
            self.model.transfer(cases, jobs), spreads=self.spreads, known=_join(self.known, Known.of(jobs))
        )

    def save(self, path: Path) -> None:
        """Keep it as one file.

        Raises:
            StoreError: It cannot be written.
        """
        spreads = {name: [round(float(value), 5) for value in values] for name, values in self.spreads.items()}
        known = {name: getattr(self.known, name) for name in Known.__slots__}
        save_model(path, self.model, {"spreads": spreads, "known": known})


def _join(one: Known, other: Known) -> Known:
    return Known(
        devices=tuple(sorted({*one.devices, *other.devices})),
        strategies=tuple(sorted({*one.strategies, *other.strategies})),
        workers=(min(one.workers[0], other.workers[0]), max(one.workers[1], other.workers[1])),
        servers=(min(one.servers[0], other.servers[0]), max(one.servers[1], other.servers[1])),
        links=(min(one.links[0], other.links[0]), max(one.links[1], other.links[1])),
        jobs=one.jobs + other.jobs,
    )


def load_consumption_model(path: Path) -> ConsumptionPredictor:
    """A predictor that was kept.

    Raises:
        StoreError: The file is none.
    """
    model, facts = load_model(path, PhysicsModel)
    try:
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in facts["known"].items()
        }
        spreads = {name: np.array(values) for name, values in facts["spreads"].items()}
        return ConsumptionPredictor(model, spreads=spreads, known=Known(**known))
    except (LookupError, TypeError, AttributeError) as exc:
        raise StoreError(f"{path}: a model of consumption without what it covers ({exc}); learn it again") from exc


def find_consumption_model(name: str = SHIPPED, *, learned: Path | None = None) -> ConsumptionPredictor:
    """The predictor of a name: the one that was learned here before the one that ships.

    Raises:
        NotFoundError: There is none.
    """
    files = {path.stem: path for path in sorted(_find_shipped().glob(f"*{SUFFIX}"))}
    files |= {path.stem: path for path in sorted(learned.glob(f"*{SUFFIX}"))} if learned and learned.is_dir() else {}
    if name not in files:
        raise NotFoundError(
            "model of consumption", name, known=list(files), hint="Learn one with 'foretell consumption learn'."
        )
    return load_consumption_model(files[name])


def learn_consumption_model(
    cases: Sequence[Case], jobs: Sequence[MeasuredJob], *, unseen: Mapping[str, Sequence[Case]] | None = None
) -> ConsumptionPredictor:
    """Learn from scratch; how far off it is comes from families of networks that are held back.

    ``unseen`` are the same cases for each family, with operators told by one who never saw it.

    Raises:
        NotEnoughRunsError: There are too few jobs.
    """
    _check_enough(jobs)
    return ConsumptionPredictor(
        PhysicsModel().fit(cases, jobs), spreads=measure_spreads(cases, jobs, unseen or {}), known=Known.of(jobs)
    )


def measure_spreads(
    cases: Sequence[Case], jobs: Sequence[MeasuredJob], unseen: Mapping[str, Sequence[Case]]
) -> dict[str, Floats]:
    """Quantiles of log(actual ÷ predicted) on families that were held back, of the iteration and of each metric."""
    names = [_ITERATION, *(_name(*target) for target in TARGETS)]
    rows = []
    for family in sorted({job.family for job in jobs}):
        inside = [n for n, job in enumerate(jobs) if job.family != family]
        held = [n for n, job in enumerate(jobs) if job.family == family]
        if len(inside) < LEAST_JOBS:
            continue
        model = PhysicsModel().fit([cases[n] for n in inside], [jobs[n] for n in inside])
        asked = unseen.get(family, cases)
        told = model.predict([asked[n] for n in held])
        actual = np.column_stack([[jobs[n].iteration_s for n in held], read_targets([jobs[n] for n in held])])
        said = np.array([[t.iteration_s, *(t.metrics.get(target, np.nan) for target in TARGETS)] for t in told])
        with np.errstate(invalid="ignore", divide="ignore"):
            rows.append(np.log(actual / said))
    if not rows:
        return {}
    misses = np.vstack(rows)
    columns = {name: column[np.isfinite(column)] for name, column in zip(names, misses.T, strict=True)}
    return {name: np.quantile(column, _QUANTILES) for name, column in columns.items() if len(column)}


def _check_enough(jobs: Sequence[MeasuredJob]) -> None:
    if len(jobs) < LEAST_JOBS:
        raise NotEnoughRunsError("consumption", have=len(jobs), need=LEAST_JOBS)


def _find_most(resource: Resource, setting: Setting) -> float:
    """What a burst cannot exceed: a whole device, or the link."""
    if resource in (Resource.TRANSMIT, Resource.RECEIVE):
        return setting.link_bytes_per_s or np.inf
    return 1.0


def _name(resource: Resource, metric: Metric) -> str:
    return f"{resource.value} {metric.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTimes:
    """How long a worker alone needs for each operator; ``note`` says where that comes from, if from figures only."""

    operator_s: Floats
    gpu: bool
    note: str = ""


def tell_operators(workload: Workload, device: str, *, figures: Device | None, learned: Path) -> OperatorTimes:
    """The times of a step's operators.

    Raises:
        NotFoundError: Neither the device's times nor its figures are known.
    """
    try:
        model = find_step_model(device, learned=learned)
    except NotFoundError:
        if figures is None:
            raise
        note = f"Times of {device} were not measured: operators are told by its figures."
        return OperatorTimes(operator_s=_bound(workload, figures), gpu=figures.kind == "gpu", note=note)
    told = model.predict(workload)
    return OperatorTimes(operator_s=np.asarray(told.kernel_s + told.gap_s), gpu=model.device.kind == "gpu")


def find_kind(device: str, *, figures: Device | None, learned: Path) -> str:
    """Whether a device is a ``cpu`` or a ``gpu``.

    Raises:
        NotFoundError: Neither the device's times nor its figures are known.
    """
    return figures.kind if figures else find_step_model(device, learned=learned).device.kind


def _bound(workload: Workload, device: Device) -> Floats:
    model = RooflineModel()
    model.flops_per_s_ = _REACHED * device.peak_flops
    model.bytes_per_s_ = _REACHED * device.bandwidth_bytes
    model.launch_s_ = _LAUNCH_S
    told = model.predict([workload])[0]
    return np.asarray(told.kernel_s + told.gap_s)


def _find_shipped() -> Path:
    return Path(str(resources.files("foretell.models.consumption") / "weights"))
