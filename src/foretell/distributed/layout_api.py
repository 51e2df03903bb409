"""Predicts training steps that several GPUs share: by a layout, or by the best of those that fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.core.devices import Device
from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import Layout, parse_layout
from foretell.core.topology import Topology
from foretell.core.warning import PredictionWarning
from foretell.distributed.layout_search import LayoutChoice, LayoutSearch, RecordedStep
from foretell.steps.api import KEPT, Input, check_batch, read_arguments, read_inputs
from foretell.steps.device_predictions import ChosenDevices
from foretell.steps.prediction_api import choose
from foretell.steps.step_results import LeftOutDevice
from foretell.workloads.api import SCRIPT_TIMEOUT_S, read_memory, read_script, read_workload
from foretell.workloads.step_options import StepOptions
from foretell.workloads.workload_warnings import find_warnings

__all__ = ["GpuPlaces", "LayoutPredictions", "LayoutQuestion", "predict_layouts", "predict_script_layouts"]

BEST = "best"
MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlaces:
    """How the GPUs are connected. Rates are those of one GPU, in bytes a second in each direction; 0 for usual ones."""

    gpus_per_node: int = 8
    link_bytes: float = 0.0
    network_bytes: float = 0.0

    def place(self, device: Device) -> Topology:
        """Those of a device."""
        return Topology(
            device=device,
            gpus_per_node=self.gpus_per_node,
            link_bytes=self.link_bytes,
            network_bytes=self.network_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPredictions:
    """Layouts with their steps: one on each device, or the best on each, the fastest first."""

    choices: tuple[LayoutChoice, ...]
    searched: bool = False
    left_out: tuple[LeftOutDevice, ...] = ()
    warnings: tuple[PredictionWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutQuestion:
    """Which GPUs share a step, and how.

    ``layout`` is ``best``, or as in ``tp=4,pp=2,zero1``. ``batch`` is that of all GPUs in one step; by default, a batch
    of the recorded step for each copy of the model, times the batches of a pipeline.
    """

    gpus: int | None = None
    layout: str = BEST
    batch: int | None = None
    micro_batch: int | None = None
    places: GpuPlaces = GpuPlaces()

    def __post_init__(self) -> None:
        wrong = [
            Mistake(place=place, found=str(value), expected="1 or more")
            for place, value in (("gpus", self.gpus), ("global-batch", self.batch), ("micro-batch", self.micro_batch))
            if value is not None and value < 1
        ]
        if self.layout == BEST and self.gpus is None:
            wrong.append(Mistake(place="gpus", found="none", expected="how many GPUs share the step, such as --gpus 8"))
        if wrong:
            raise SpecError("the layout", wrong)

    def parse(self) -> Layout | None:
        """The layout; None if the best is asked for."""
        return None if self.layout == BEST else parse_layout(self.layout, gpus=self.gpus)


def predict_layouts(
    source: str,
    inputs: Sequence[Input] = (),
    *,
    question: LayoutQuestion,
    devices: Sequence[str | Device] | str,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
    calibrations: Sequence[Path] = (),
    method: str | None = None,
    risk: float = 0.05,
    level: float = 0.9,
    folder: Path = KEPT,
) -> LayoutPredictions:
    """The step of a model that several GPUs share, on each device, with the memory of the GPU that holds most.

    The inputs, or ``batch``, are one batch on one GPU, which layouts divide; ``question`` names GPUs and layout.

    Raises:
        NotFoundError: There is no such device, method, file, module or factory.
        SpecError: The layout does not divide the model or the batch, or a device lacks the precision.
        MissingExtraError, WorkloadError: As :func:`foretell.read_workload`.
    """
    check_batch(batch)
    options = options or StepOptions()
    _check_mode(options)
    question.parse()
    chosen = choose(None, devices, options.precision, (), calibrations, method=method, folder=folder)
    given, named = read_inputs(inputs), read_arguments(arguments)
    alone, batch = replace(options, accumulation=1), question.micro_batch or batch
    step = RecordedStep(
        workload=read_workload(source, given, arguments=named, options=alone, batch=batch),
        memory=read_memory(source, given, arguments=named, options=alone, batch=batch),
    )
    return _Answer(step, question, chosen, options.accumulation, risk=risk, level=level).find()


def predict_script_layouts(
    command: Sequence[str],
    *,
    question: LayoutQuestion,
    devices: Sequence[str | Device] | str,
    calibrations: Sequence[Path] = (),
    method: str | None = None,
    risk: float = 0.05,
    level: float = 0.9,
    folder: Path = KEPT,
    timeout_s: float = SCRIPT_TIMEOUT_S,
    on_progress: Callable[[str], None] | None = None,
) -> LayoutPredictions:
    """The step of a script that several GPUs share, as :func:`predict_layouts`; the script runs here until its step.

    Raises:
        NotFoundError, SpecError: As :func:`predict_layouts`.
        MissingExtraError, NotFoundError, WorkloadError: As :func:`foretell.read_script`.
    """
    question.parse()
    choose(None, devices, "fp32", (), calibrations, method=method, folder=folder)
    script = read_script(command, timeout_s=timeout_s, on_progress=on_progress, memory=True)
    precision = script.workload.settings["precision"]
    chosen = choose(None, devices, precision, (), calibrations, method=method, folder=folder)
    step = RecordedStep(workload=script.workload, memory=script.memory)
    found = _Answer(step, question, chosen, 1, risk=risk, level=level).find()
    return replace(found, warnings=(*found.warnings, *script.warnings))


def _check_mode(options: StepOptions) -> None:
    if options.mode != "training":
        expected = "mode training: layouts share the steps of a training"
        raise SpecError("the layout", [Mistake(place="mode", found=options.mode, expected=expected)])


class _Answer:
    def __init__(
        self,
        step: RecordedStep,
        question: LayoutQuestion,
        chosen: ChosenDevices,
        accumulation: int,
        *,
        risk: float,
        level: float,
    ) -> None:
        self._step, self._question, self._chosen, self._accumulation = step, question, chosen, accumulation
        self._predictors = {predictor.device: predictor for predictor in chosen.predictors}
        self._search = LayoutSearch(step, find_predictor=self._predictors.__getitem__, risk=risk, level=level)

    def find(self) -> LayoutPredictions:
        """The choices on each device."""
        layout = self._question.parse()
        choices: list[LayoutChoice] = []
        for device in self._predictors:
            topology = self._question.places.place(device)
            choices += self._rank(topology) if layout is None else [self._predict(topology, layout)]
        return LayoutPredictions(
            choices=tuple(choices),
            searched=layout is None,
            left_out=self._chosen.left_out,
            warnings=tuple(self._find_warnings()),
        )

    def _rank(self, topology: Topology) -> list[LayoutChoice]:
        gpus = self._question.gpus or 1
        batch = self._question.batch or self._step.workload.batch * self._accumulation * gpus
        return self._search.rank(topology, gpus=gpus, batch=batch, micro_batch=self._question.micro_batch, most=MOST)

    def _predict(self, topology: Topology, layout: Layout) -> LayoutChoice:
        batch, micro = self._question.batch, self._question.micro_batch
        if batch is None:
            size = self._step.workload.batch
            batch = size * max(layout.accumulated, self._accumulation) * layout.copies
            micro = micro or size
        return self._search.predict(topology, layout, batch=batch, micro_batch=micro)

    def _find_warnings(self) -> list[PredictionWarning]:
        found = [each for predictor in self._predictors.values() for each in predictor.warnings]
        return [*found, *find_warnings(self._step.workload)]
