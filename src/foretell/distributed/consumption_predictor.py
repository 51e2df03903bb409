"""Predicts what distributed training consumes with intervals, warns outside the measured settings, keeps models."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from foretell.core.errors import Mistake, NotEnoughRunsError, NotFoundError, SpecError, StoreError
from foretell.core.intervals import NO_SPREAD, QuantileSpread, build_estimate, count_doublings
from foretell.core.model_files import load_model, read_rising, save_model
from foretell.core.observation import Metric, Resource
from foretell.core.prediction import Estimate
from foretell.core.serialization import from_record, to_record
from foretell.core.units import render_duration, render_link
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Floats, Workload
from foretell.distributed import DEFAULT_METHOD, METHODS, get_method
from foretell.distributed._base import (
    TARGETS,
    ConsumptionModel,
    TransferableModel,
    find_least_iteration,
    find_least_transfer,
    read_targets,
)
from foretell.distributed.consumption import Case, Consumed, ConsumptionPrediction, CycleEstimate, MeasuredJob, Setting

T = TypeVar("T", int, float)
SUFFIX = ".safetensors"
SHIPPED = {DEFAULT_METHOD: "shared", "totals": "totals", "bandwidth": "bandwidth"}  # the model of each method
LEAST_JOBS = 3
_LEARN = "foretell consumption learn --jobs FILE"
_FIT_AGAIN = f"fit it again with '{_LEARN}'"
_QUANTILES = 101
_UNMEASURED = np.log(1.3)  # wider on either side in a setting that was not measured
_PER_DOUBLING = np.log(1.1)  # and wider still with each doubling outside the measured range
_OTHER_DEVICE_DOUBLINGS = 4.0  # where operator times are those of another device
_NEAR = 2.0  # times the least or the most: as good as measured
_ITERATION = "iteration"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSettings:
    """The settings and iterations that a model was fitted to."""

    settings: tuple[Setting, ...]
    iterations_s: tuple[float, float]  # the shortest and the longest
    jobs: int

    @classmethod
    def of(cls, jobs: Sequence[MeasuredJob]) -> Self:
        """Those of measured jobs."""
        lengths = [job.iteration_s for job in jobs]
        settings = tuple(dict.fromkeys(job.setting for job in jobs))
        return cls(settings=settings, iterations_s=(min(lengths), max(lengths)), jobs=len(jobs))

    def join(self, other: "MeasuredSettings") -> "MeasuredSettings":
        """Those of both."""
        lengths = (*self.iterations_s, *other.iterations_s)
        return MeasuredSettings(
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
        """Where a training is outside these settings, each with the distance in doublings."""
        if setting.device not in self.devices:
            text = (
                f"No distributed training on {setting.device} was measured, only on {', '.join(self.devices)}: "
                "the cost of communication there is unknown, and the interval is wider."
            )
            measured = list(self.devices)
            yield build_warning("device-not-measured", text, device=setting.device, measured=measured), 0.0
        if setting.communicates:
            yield from self._warn_of_communication(setting)
        if iteration_s is not None:
            short, long = self.iterations_s
            doublings = count_doublings(iteration_s, short / _NEAR, long * _NEAR)
            if doublings:
                ranges = _render_range(self.iterations_s, render_duration)
                text = f"An iteration of {render_duration(iteration_s)}; measured: {ranges}."
                yield _warn_of_range("iteration_s", iteration_s, self.iterations_s, text), doublings

    def _warn_of_communication(self, setting: Setting) -> Iterator[tuple[PredictionWarning, float]]:
        strategy = name_strategy(setting)
        like = [each for each in self.settings if name_strategy(each) == strategy]
        if not like:
            others = sorted({name_strategy(each) for each in self.settings})
            text = f"No {strategy} training was measured, only {', '.join(others)}."
            yield build_warning("strategy-not-measured", text, strategy=strategy, measured=others), 0.0
        like = like or list(self.settings)
        for word, value, counts in (
            ("workers", setting.workers, [each.workers for each in like]),
            ("servers", setting.servers, [each.servers for each in like]),
        ):
            doublings = count_doublings(value, min(counts), max(counts)) if value else 0.0
            if doublings:
                text = f"{value} {word} with {strategy}; measured: {_render_range(counts, str)}."
                yield _warn_of_range(word, value, counts, text), doublings
        yield from _warn_of_link(setting, [each.link_bytes_per_s for each in like])


def _warn_of_range(name: str, value: float, measured: Sequence[float], text: str) -> PredictionWarning:
    low, high = min(measured), max(measured)
    return build_warning("outside-measured-range", text, name=name, value=value, low=low, high=high)


def _warn_of_link(setting: Setting, measured: Sequence[float | None]) -> Iterator[tuple[PredictionWarning, float]]:
    link, rates = setting.link_bytes_per_s, [rate for rate in measured if rate]
    if link is None:
        if None not in measured:
            text = "No link was given, and no training without a link was measured."
            yield build_warning("link-not-measured", text, link_bytes_per_s=None), 0.0
        return
    if not rates:
        text = f"A link of {render_link(link)}; only trainings without a limited link were measured."
        yield build_warning("link-not-measured", text, link_bytes_per_s=link), 0.0
        return
    doublings = count_doublings(link, min(rates) / _NEAR, max(rates) * _NEAR)
    if doublings:
        ranges = _render_range(rates, render_link)
        text = f"A link of {render_link(link)} with {name_strategy(setting)}; measured: {ranges}."
        yield _warn_of_range("link_bytes_per_s", link, rates, text), doublings


def _render_range(values: Sequence[T], render: Callable[[T], str]) -> str:
    """``2 to 4``, or ``2`` alone."""
    return " to ".join(dict.fromkeys((render(min(values)), render(max(values)))))


def name_strategy(setting: Setting) -> str:
    """``allreduce``, ``asynchronous ps``."""
    return setting.strategy.value if setting.synchronous else f"asynchronous {setting.strategy.value}"


class ConsumptionPredictor:
    """A fitted model, with its errors on families of networks that were held back."""

    def __init__(
        self, model: ConsumptionModel, *, spreads: Mapping[str, QuantileSpread], measured: MeasuredSettings
    ) -> None:
        self.model = model
        self.spreads = dict(spreads)
        self.measured = measured

    @property
    def method(self) -> str:
        """The name of the model's method."""
        return self.model.kind

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
        """What a training consumes; outside the measured settings, intervals are wider and there are warnings.

        ``guess`` is the warning where operator times come from another device.

        Raises:
            NotFoundError: The method predicts only settings that were measured.
        """
        unmeasured = gpu and setting.device not in self.measured.devices  # what communication costs a core is no GPU's
        case = Case(
            workload=workload, setting=setting, operator_s=operator_s, busy_s=busy_s, device_measured=not unmeasured
        )
        predicted = _respect_link(self.model.predict([case])[0], case)
        outside = list(self.measured.list_warnings(setting, predicted.iteration_s))
        if guess and setting.device not in self.measured.devices:
            warning = build_warning("operators-not-measured", guess, device=setting.device)
            outside.append((warning, _OTHER_DEVICE_DOUBLINGS))
        wider = (_UNMEASURED if outside else 0.0) + _PER_DOUBLING * sum(doublings for _, doublings in outside)

        cycles = {
            resource: CycleEstimate(
                **{
                    metric.value: self.bound(
                        _name(resource, metric),
                        predicted.metrics[resource, metric],
                        level=level,
                        wider=wider,
                        most=_find_most(resource, setting) if metric is Metric.AMOUNT else np.inf,
                        floor=_find_least(resource, case) if metric is Metric.BURST else 0.0,
                    )
                    for metric in Metric
                }
            )
            for resource in Resource
            if (resource, Metric.BURST) in predicted.metrics
        }
        return ConsumptionPrediction(
            workload=workload,
            setting=setting,
            iteration=self.bound(
                _ITERATION, predicted.iteration_s, level=level, wider=wider, floor=find_least_iteration(case)
            ),
            compute_s=predicted.compute_s,
            exposed_s=predicted.exposed_s,
            cycles=cycles,
            gpu=gpu,
            warnings=(*(warning for warning, _ in outside), *warnings),
        )

    def bound(
        self, name: str, value: float, *, level: float, wider: float = 0.0, most: float = np.inf, floor: float = 0.0
    ) -> Estimate:
        """A quantity with its interval, ``wider`` on either side as a logarithm, and never below the ``floor``."""
        spread = self.spreads.get(name)
        if spread is None:
            found = build_estimate(value, NO_SPREAD, level=level, shift=_UNMEASURED + wider, most=most)
        else:
            found = build_estimate(value, spread, level=level, shift=wider, most=most)
        low, middle, high = (max(each, floor) for each in (found.low, found.value, found.high))
        return replace(found, low=low, value=middle, high=high)

    def transfer(self, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> "ConsumptionPredictor":
        """The predictor transferred to the setting of a few more jobs.

        Raises:
            NotEnoughRunsError: There are too few jobs.
            SpecError: The method has no transfer.
        """
        _check_enough(jobs)
        if not isinstance(self.model, TransferableModel):
            expected = "timeline or driple; or --scratch"
            raise SpecError(
                "options", [Mistake(place="method", found=f"{self.method}, without transfer", expected=expected)]
            )
        return ConsumptionPredictor(
            self.model.transfer(cases, jobs),
            spreads=self.spreads,
            measured=self.measured.join(MeasuredSettings.of(jobs)),
        )

    def save(self, path: Path) -> None:
        """Write it to one file.

        Raises:
            StoreError: It cannot be written.
        """
        spreads = {name: spread.round() for name, spread in self.spreads.items()}
        save_model(path, self.model, {"spreads": spreads, "measured": to_record(self.measured)})


def load_consumption_model(path: Path) -> ConsumptionPredictor:
    """The predictor of a file.

    Raises:
        StoreError: The file has no model that can be used.
    """
    model, facts = load_model(path, [get_method(name) for name in METHODS], remedy=_FIT_AGAIN)
    try:
        spreads = {
            name: QuantileSpread(quantiles=tuple(read_rising(values, count=_QUANTILES).tolist()))
            for name, values in facts["spreads"].items()
        }
        measured = from_record(MeasuredSettings, facts["measured"])
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise StoreError(f"{path}: the model lacks its intervals or settings ({exc}); {_FIT_AGAIN}") from exc
    return ConsumptionPredictor(model, spreads=spreads, measured=measured)


def find_consumption_model(
    name: str | None = None, *, method: str | None = None, learned: Path | None = None
) -> ConsumptionPredictor:
    """The predictor of a name, learned here or shipped; without a name, the one that ships with the method.

    Raises:
        NotFoundError: There is no such method or model.
        SpecError: The model of that name has another method.
    """
    if method is not None:
        get_method(method)
    if name is None:
        return load_consumption_model(_get_shipped(method or DEFAULT_METHOD))
    files = {path.stem: path for path in sorted(_find_shipped().glob(f"*{SUFFIX}"))}
    files |= {path.stem: path for path in sorted(learned.glob(f"*{SUFFIX}"))} if learned and learned.is_dir() else {}
    if name not in files:
        raise NotFoundError(
            "consumption model", name, known=list(files), hint=f"Fit one with '{_LEARN} --name {name}'."
        )
    model = load_consumption_model(files[name])
    if method is not None and model.method != method:
        expected = f"--method {model.method}, or the name of a {method} model"
        raise SpecError(
            "options", [Mistake(place="model", found=f"{name}, fitted by {model.method}", expected=expected)]
        )
    return model


def _get_shipped(method: str) -> Path:
    if method not in SHIPPED:
        raise NotFoundError(
            "shipped model for a method",
            method,
            known=SHIPPED,
            hint=f"Fit one with '{_LEARN} --method {method} --name NAME', then pass --model NAME.",
        )
    return _find_shipped() / f"{SHIPPED[method]}{SUFFIX}"


def learn_consumption_model(
    cases: Sequence[Case],
    jobs: Sequence[MeasuredJob],
    *,
    method: str = DEFAULT_METHOD,
    held_back: Mapping[str, Sequence[Case]] | None = None,
) -> ConsumptionPredictor:
    """Fit a model to jobs; its intervals come from families of networks that are held back.

    ``held_back`` has the same cases for each family, with operator times predicted without that family.

    Raises:
        NotEnoughRunsError: There are too few jobs.
        NotFoundError: There is no such method.
    """
    _check_enough(jobs)
    build = get_method(method)
    return ConsumptionPredictor(
        build().fit(cases, jobs),
        spreads=measure_spreads(build, cases, jobs, held_back or {}),
        measured=MeasuredSettings.of(jobs),
    )


def measure_spreads(
    build: Callable[[], ConsumptionModel],
    cases: Sequence[Case],
    jobs: Sequence[MeasuredJob],
    held_back: Mapping[str, Sequence[Case]],
) -> dict[str, QuantileSpread]:
    """Quantiles of log(measured ÷ predicted) on families that were held back, of the iteration and of each metric."""
    rows = []
    for family in sorted({job.family for job in jobs}):
        inside = [n for n, job in enumerate(jobs) if job.family != family]
        if len(inside) < LEAST_JOBS:
            continue
        model = build().fit([cases[n] for n in inside], [jobs[n] for n in inside])
        outside = [n for n, job in enumerate(jobs) if job.family == family and model.can_predict(job.setting)]
        asked = held_back.get(family, cases)
        predicted = model.predict([asked[n] for n in outside])
        measured = np.column_stack([[jobs[n].iteration_s for n in outside], read_targets([jobs[n] for n in outside])])
        values = [[each.iteration_s, *(each.metrics.get(target, np.nan) for target in TARGETS)] for each in predicted]
        with np.errstate(invalid="ignore", divide="ignore"):
            rows.append(np.log(measured / np.array(values).reshape(measured.shape)))
    if not rows:
        return {}
    names = [_ITERATION, *(_name(*target) for target in TARGETS)]
    columns = {name: column[np.isfinite(column)] for name, column in zip(names, np.vstack(rows).T, strict=True)}
    return {name: QuantileSpread.learn(column, count=_QUANTILES) for name, column in columns.items() if len(column)}


def _check_enough(jobs: Sequence[MeasuredJob]) -> None:
    if len(jobs) < LEAST_JOBS:
        raise NotEnoughRunsError("consumption", have=len(jobs), need=LEAST_JOBS)


def _find_most(resource: Resource, setting: Setting) -> float:
    """The upper limit of a burst: a whole device, or the link."""
    if resource in (Resource.TRANSMIT, Resource.RECEIVE):
        return setting.link_bytes_per_s or np.inf
    return 1.0


def _respect_link(predicted: Consumed, case: Case) -> Consumed:
    """The iteration and its bursts are as long as the link needs for the bytes, at least; idle times are the rest."""
    whole = max(predicted.iteration_s, find_least_iteration(case))
    metrics = dict(predicted.metrics)
    for resource in sorted({each for each, metric in metrics if metric is Metric.BURST}):
        burst = metrics[resource, Metric.BURST]
        longer = max(burst, _find_least(resource, case))
        if longer > burst or whole > predicted.iteration_s:
            metrics[resource, Metric.BURST] = longer
            metrics[resource, Metric.IDLE] = max(whole - longer, 0.0)
    exposed = predicted.exposed_s + whole - predicted.iteration_s
    return replace(predicted, iteration_s=whole, exposed_s=exposed, metrics=metrics)


def _find_least(resource: Resource, case: Case) -> float:
    """The lower limit of a burst's length: on the network, the bytes at the full rate of the link."""
    return find_least_transfer(case) if resource in (Resource.TRANSMIT, Resource.RECEIVE) else 0.0


def _name(resource: Resource, metric: Metric) -> str:
    return f"{resource.value} {metric.value}"


def _find_shipped() -> Path:
    return Path(str(resources.files("foretell.distributed") / "weights"))
