"""From a training step and a setting to what distributed training consumes, and how sure that is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from foretell.core.cycles import Metric, Resource
from foretell.core.devices import Device
from foretell.core.errors import NotEnoughRunsError, NotFoundError, StoreError
from foretell.core.intervals import NO_SPREAD, QuantileSpread, build_estimate, count_doublings
from foretell.core.model_checks import read_rising
from foretell.core.model_files import load_model, save_model
from foretell.core.prediction import Estimate
from foretell.core.serialization import from_record, to_record
from foretell.core.units import render_duration, render_link
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Floats, Workload
from foretell.distributed.consumption import Case, ConsumptionPrediction, CycleEstimate, MeasuredJob, Setting
from foretell.distributed.consumption_targets import TARGETS, read_targets
from foretell.distributed.timeline_model import PhysicsModel
from foretell.steps._base import StepTimes
from foretell.steps.baselines import RooflineModel
from foretell.steps.replay import ReplayModel
from foretell.steps.step_predictor import find_step_predictor, load_shipped_predictors

T = TypeVar("T", int, float)
SUFFIX = ".safetensors"
SHIPPED = "shared"
LEAST_JOBS = 3
_QUANTILES = 101
_UNSEEN = np.log(1.3)  # wider on either side, where a setting is none of those learned from: nobody can tell
_FARTHER = np.log(1.1)  # and wider still with each doubling beyond them
_GUESSED = 4.0  # doublings, where the times of operators are those of another device
_NEAR = 2.0  # times the least or the most: as good as measured
_ITERATION = "iteration"
_REACHED = 0.5  # of a device's public figures, where its times are not known
_LAUNCH_S = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was learned from, to tell when a question lies outside."""

    settings: tuple[Setting, ...]
    iterations_s: tuple[float, float]  # the shortest and the longest
    jobs: int

    @classmethod
    def of(cls, jobs: Sequence[MeasuredJob]) -> Self:
        """What jobs cover."""
        lengths = [job.iteration_s for job in jobs]
        settings = tuple(dict.fromkeys(job.setting for job in jobs))
        return cls(settings=settings, iterations_s=(min(lengths), max(lengths)), jobs=len(jobs))

    def join(self, other: "Known") -> "Known":
        """What both cover."""
        lengths = (*self.iterations_s, *other.iterations_s)
        return Known(
            settings=tuple(dict.fromkeys((*self.settings, *other.settings))),
            iterations_s=(min(lengths), max(lengths)),
            jobs=self.jobs + other.jobs,
        )

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(sorted({setting.device for setting in self.settings}))

    def list_warnings(
        self, setting: Setting, iteration_s: float | None = None
    ) -> Iterator[tuple[PredictionWarning, float]]:
        """Where a training is none of these; each warning with how far outside it lies, in doublings."""
        if setting.device not in self.devices:
            text = (
                f"No distributed training on {setting.device} was measured, only on {', '.join(self.devices)}: "
                "what communication costs there is not known, and bounds are wider."
            )
            measured = list(self.devices)
            yield build_warning("device-not-measured", text, device=setting.device, measured=measured), 0.0
        if setting.communicates:
            yield from self._warn_of_communication(setting)
        if iteration_s is not None:
            short, long = self.iterations_s
            far = count_doublings(iteration_s, short / _NEAR, long * _NEAR)
            if far:
                ranges = _render_range(self.iterations_s, render_duration)
                text = f"An iteration of {render_duration(iteration_s)}; measured: {ranges}."
                yield _warn_of_range("iteration_s", iteration_s, self.iterations_s, text), far

    def _warn_of_communication(self, setting: Setting) -> Iterator[tuple[PredictionWarning, float]]:
        like = [each for each in self.settings if name_strategy(each) == name_strategy(setting)]
        if not like:
            others = sorted({name_strategy(each) for each in self.settings})
            text = f"No {name_strategy(setting)} training was measured, only {', '.join(others)}."
            strategy = name_strategy(setting)
            yield build_warning("strategy-not-measured", text, strategy=strategy, measured=others), 0.0
        like = like or list(self.settings)
        for word, value, counts in (
            ("workers", setting.workers, [each.workers for each in like]),
            ("servers", setting.servers, [each.servers for each in like]),
        ):
            far = count_doublings(value, min(counts), max(counts)) if value else 0.0
            if far:
                text = f"{value} {word} with {name_strategy(setting)}; measured: {_render_range(counts, str)}."
                yield _warn_of_range(word, value, counts, text), far
        yield from _warn_of_link(setting, [each.link_bytes_per_s for each in like])


def _warn_of_range(name: str, value: float, measured: Sequence[float], text: str) -> PredictionWarning:
    low, high = min(measured), max(measured)
    return build_warning("outside-measured-range", text, name=name, value=value, low=low, high=high)


def _warn_of_link(setting: Setting, measured: Sequence[float | None]) -> Iterator[tuple[PredictionWarning, float]]:
    link, rates = setting.link_bytes_per_s, [rate for rate in measured if rate]
    if link is None:
        if None not in measured:
            text = "No link was named, and no training without one was measured."
            yield build_warning("link-not-measured", text, link_bytes_per_s=None), 0.0
        return
    if not rates:
        text = f"A link of {render_link(link)}: no training with a link that has a rate was measured."
        yield build_warning("link-not-measured", text, link_bytes_per_s=link), 0.0
        return
    far = count_doublings(link, min(rates) / _NEAR, max(rates) * _NEAR)
    if far:
        ranges = _render_range(rates, render_link)
        text = f"A link of {render_link(link)} with {name_strategy(setting)}; measured: {ranges}."
        yield _warn_of_range("link_bytes_per_s", link, rates, text), far


def _render_range(values: Sequence[T], render: Callable[[T], str]) -> str:
    """``2 to 4``, or ``2`` alone."""
    return " to ".join(dict.fromkeys((render(min(values)), render(max(values)))))


def name_strategy(setting: Setting) -> str:
    """As in sentences."""
    return setting.strategy.value if setting.synchronous else f"asynchronous {setting.strategy.value}"


class ConsumptionPredictor:
    """A model of consumption, with how far it was off on families of networks it had not seen."""

    def __init__(self, model: PhysicsModel, *, spreads: Mapping[str, QuantileSpread], known: Known) -> None:
        self.model = model
        self.spreads = dict(spreads)
        self.known = known

    def predict(
        self,
        workload: Workload,
        setting: Setting,
        operator_s: Floats,
        *,
        busy_s: Floats | None = None,
        gpu: bool = False,
        guess: str = "",
        level: float = 0.9,
        warnings: Sequence[PredictionWarning] = (),
    ) -> ConsumptionPrediction:
        """What a training consumes; a setting unlike those learned from makes the bounds wider, and is told.

        ``guess`` says where the times of operators come from, if they are hardly more than a guess.
        """
        foreign = gpu and setting.device not in self.known.devices  # what communication costs a core is not a GPU's
        case = Case(workload=workload, setting=setting, operator_s=operator_s, busy_s=busy_s, foreign=foreign)
        told = self.model.predict([case])[0]
        outside = list(self.known.list_warnings(setting, told.iteration_s))
        if guess and setting.device not in self.known.devices:
            outside.append((build_warning("operators-not-measured", guess, device=setting.device), _GUESSED))
        wider = (_UNSEEN if outside else 0.0) + _FARTHER * sum(far for _, far in outside)

        cycles = {
            resource: CycleEstimate(
                **{
                    metric.value: self.bound(
                        _name(resource, metric),
                        told.metrics[resource, metric],
                        level=level,
                        wider=wider,
                        most=_find_most(resource, setting) if metric is Metric.AMOUNT else np.inf,
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
            iteration=self.bound(_ITERATION, told.iteration_s, level=level, wider=wider),
            compute_s=told.compute_s,
            exposed_s=told.exposed_s,
            cycles=cycles,
            gpu=gpu,
            warnings=(*(warning for warning, _ in outside), *warnings),
        )

    def bound(self, name: str, value: float, *, level: float, wider: float = 0.0, most: float = np.inf) -> Estimate:
        """A quantity with its interval, ``wider`` on either side, in logs."""
        spread = self.spreads.get(name)
        if spread is None:
            return build_estimate(value, NO_SPREAD, level=level, shift=_UNSEEN + wider, most=most)
        return build_estimate(value, spread, level=level, shift=wider, most=most)

    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> "ConsumptionPredictor":
        """What was learned, carried to the setting of a few more jobs.

        Raises:
            NotEnoughRunsError: There are too few.
        """
        _check_enough(jobs)
        return ConsumptionPredictor(
            self.model.transfer(cases, jobs), spreads=self.spreads, known=self.known.join(Known.of(jobs))
        )

    def save(self, path: Path) -> None:
        """Keep it as one file.

        Raises:
            StoreError: It cannot be written.
        """
        spreads = {name: spread.round() for name, spread in self.spreads.items()}
        save_model(path, self.model, {"spreads": spreads, "known": to_record(self.known)})


def load_consumption_model(path: Path) -> ConsumptionPredictor:
    """A predictor that was kept.

    Raises:
        StoreError: The file is none.
    """
    model, facts = load_model(path, [PhysicsModel], remedy="learn it again")
    try:
        spreads = {
            name: QuantileSpread(quantiles=tuple(read_rising(values, count=_QUANTILES).tolist()))
            for name, values in facts["spreads"].items()
        }
        return ConsumptionPredictor(model, spreads=spreads, known=from_record(Known, facts["known"]))
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
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
) -> dict[str, QuantileSpread]:
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
    return {name: QuantileSpread.learn(column, count=_QUANTILES) for name, column in columns.items() if len(column)}


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
    """How long a worker alone needs for each operator, and for how much of that its device is busy.

    ``guess`` says where that comes from, if nobody measured the device.
    """

    operator_s: Floats
    busy_s: Floats | None
    gpu: bool
    guess: str = ""


def tell_operators(workload: Workload, device: str, *, figures: Device | None, learned: Path) -> OperatorTimes:
    """The times of a step's operators.

    Raises:
        NotFoundError: Neither the device's times nor its figures are known.
    """
    try:
        model = find_step_predictor(device, learned=learned)
    except NotFoundError:
        if figures is None:
            raise
        return _guess_operators(workload, figures)
    gpu = model.device.kind == "gpu"
    told = model.predict(workload)
    return OperatorTimes(
        operator_s=np.asarray(told.kernel_s + told.gap_s), busy_s=told.kernel_s if gpu else None, gpu=gpu
    )


def _guess_operators(workload: Workload, figures: Device) -> OperatorTimes:
    """By the figures of a device: from the times of the most alike GPU whose times ship, or by how fast it can be."""
    alike = [model.model for model in load_shipped_predictors() if isinstance(model.model, ReplayModel)]
    if figures.kind == "gpu" and alike:
        nearest = min(alike, key=lambda model: abs(np.log(model.device.peak_flops / figures.peak_flops)))
        told = nearest.transfer(figures, []).predict([workload])[0]
        how = f"operators are told by those of {nearest.device.name}, and by the figures of both"
    else:
        told = _bound(workload, figures)
        how = "operators are told by its figures"
    return OperatorTimes(
        operator_s=np.asarray(told.kernel_s + told.gap_s),
        busy_s=told.kernel_s if figures.kind == "gpu" else None,
        gpu=figures.kind == "gpu",
        guess=f"Times of {figures.name} were not measured: {how}.",
    )


def find_kind(device: str, *, figures: Device | None, learned: Path) -> str:
    """Whether a device is a ``cpu`` or a ``gpu``.

    Raises:
        NotFoundError: Neither the device's times nor its figures are known.
    """
    return figures.kind if figures else find_step_predictor(device, learned=learned).device.kind


def _bound(workload: Workload, device: Device) -> StepTimes:
    model = RooflineModel()
    model.flops_per_s_ = _REACHED * device.peak_flops
    model.bytes_per_s_ = _REACHED * device.bandwidth_bytes
    model.launch_s_ = _LAUNCH_S
    return model.predict([workload])[0]


def _find_shipped() -> Path:
    return Path(str(resources.files("foretell.distributed") / "weights"))
