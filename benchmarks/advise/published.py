"""Training steps and whole jobs that others published, and their predictions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from benchmarks.advise.networks import read_network
from benchmarks.distributed.shared_rows import PredictedRow, SharedRow, predict_rows
from foretell.advice.training_job import TrainingJob
from foretell.advice.training_plan import STARTUP_S
from foretell.core.devices import Device, get_device
from foretell.core.layouts import Layout, parse_layout
from foretell.core.prediction import Estimate
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.steps.kernels.step_times import KernelStepModel
from foretell.steps.step_predictor import StepPredictor, find_step_predictor


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published rate of a training on several GPUs.

    ``task`` is the same for all choices of GPUs and batches for the same training: among them is the best.
    """

    source: str
    task: str
    network: str
    device: Device
    gpus: int
    batch: int  # of a GPU at once
    precision: str
    rate: float  # examples a second of all GPUs
    gpus_per_node: int = 8
    layout: str = "ddp"
    accumulation: int = 1  # batches of a GPU before an update
    options: Mapping[str, Any] | None = None
    group: str = ""  # a part of the source
    label: str = ""  # what else the source says of the row
    read: Callable[[], Workload] | None = field(default=None, repr=False, compare=False)  # of a network of the user's
    loaded_rate: float = 0.0  # examples a second with the loading of data, if published as well

    @property
    def step_s(self) -> float:
        """The published time of a step."""
        return self.batch * self.accumulation * self.copies / self.rate

    @property
    def copies(self) -> int:
        """Of the model."""
        return self._layout.copies

    @property
    def _layout(self) -> Layout:
        return parse_layout(self.layout if self.gpus > 1 else "", gpus=self.gpus)

    def build_row(self) -> SharedRow:
        """What is predicted."""
        options = dict(self.options or {})
        return SharedRow(
            source=self.source,
            group=self.group or self.source,
            model=self.network,
            workload=f"{self.network} {self.batch} {self.precision} {sorted(options.items())}",
            layout=self._layout,
            topology=Topology(device=self.device, gpus_per_node=self.gpus_per_node),
            accumulation=self.accumulation,
            seconds=self.step_s,
            read=self.read
            or partial(read_network, self.network, batch=self.batch, precision=self.precision, **options),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A published rate and its prediction."""

    row: Published
    predicted: PredictedRow

    @property
    def step(self) -> Estimate:
        """The predicted time of a step."""
        return self.predicted.step.step

    @property
    def ratio(self) -> float:
        """Predicted by published time: above 1 if predicted too slow."""
        return self.step.value / self.row.step_s

    @property
    def inside(self) -> bool:
        """Whether the published time lies in the interval."""
        return self.step.low <= self.row.step_s <= self.step.high

    @property
    def rate(self) -> float:
        """Predicted examples a second of all GPUs."""
        return self.row.rate / self.ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedJob:
    """A whole training, and its prediction."""

    step: Compared
    total: Estimate
    measured_s: float

    @property
    def ratio(self) -> float:
        """Predicted by published time."""
        return self.total.value / self.measured_s

    @property
    def inside(self) -> bool:
        """Whether the published time lies in the interval."""
        return self.total.low <= self.measured_s <= self.total.high

    @property
    def waiting(self) -> float:
        """The share of the published steps in which GPUs waited for data; 0 if it is not published."""
        row = self.step.row
        return 1 - row.loaded_rate / row.rate if row.loaded_rate else 0.0


def compare_job(
    step: Compared, *, name: str, samples: int, measured_s: float, epochs: float = 1.0, evaluation_share: float = 0.0
) -> ComparedJob:
    """A job of so many samples, with the start that is assumed of any job."""
    published = step.row
    startup, least, most = STARTUP_S[1], STARTUP_S[0], STARTUP_S[2]
    job = TrainingJob(
        name=name,
        batch=published.batch * published.accumulation * published.copies,
        samples=samples,
        epochs=epochs,
        startup=Estimate(value=startup, low=least, high=most, level=step.step.level),
        evaluation_share=evaluation_share,
        host=Estimate(value=0.0, low=0.0, high=0.0, level=step.step.level),
    )
    total = job.predict(step.step, gpus=published.gpus).total
    return ComparedJob(step=step, total=total, measured_s=measured_s)


def compare(rows: Sequence[Published]) -> list[Compared]:
    """The rows that can be predicted; why others cannot is printed."""
    built = [each.build_row() for each in rows]
    places = {id(row): place for place, row in enumerate(built)}
    found = predict_rows(built, find_predictor=_find_predictor)
    return [Compared(row=rows[places[id(each.row)]], predicted=each) for each in found]


def get_changed_device(name: str, **figures: Any) -> Device:
    """A device of the catalogue, with other figures of a board."""
    return replace(get_device(name), **figures)


@cache
def _find_predictor(topology: Topology) -> StepPredictor:
    return _find_device_predictor(topology.device)


@cache
def _find_device_predictor(device: Device) -> StepPredictor:
    if device == get_device(device.name):
        return find_step_predictor(device.name)
    model = KernelStepModel(device)
    return StepPredictor(model, device=device, spreads={})
