"""Published pairs of model and GPU, and their predictions."""

import hashlib
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpus.captures import cached
from benchmarks.sanity import networks
from foretell.core.workload import StepEstimate, Workload
from foretell.steps.kernels.step_times import KernelStepModel
from foretell.steps.step_predictor import StepPredictor, find_step_predictor
from foretell.steps.step_results import StepPrediction
from foretell.workloads.capture import capture
from foretell.workloads.step_options import StepOptions

PUBLISHED = Path(__file__).with_name("published.toml")
LEVEL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A model on a device, and the throughput that somebody published."""

    model: str
    device: str
    precision: str
    batch: int
    source: str
    said: str
    length: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)  # of the measured device, where they differ
    board: str = ""  # the name of such a device
    examples_per_s: float | None = None
    tokens_per_s: float | None = None
    differs: str = ""

    @property
    def published_s(self) -> float:
        """The published time of a step."""
        examples = self.batch * int(self.options.get("accumulation", 1))
        if self.examples_per_s is not None:
            return examples / self.examples_per_s
        assert self.tokens_per_s is not None
        return examples * self.length / self.tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A predicted pair."""

    pair: Pair
    prediction: StepPrediction
    kernels_s: dict[str, float]  # by kind of operator

    @property
    def ratio(self) -> float:
        """Predicted by published throughput: above 1 if predicted too fast."""
        return self.pair.published_s / self.estimate.iteration.value

    @property
    def inside(self) -> bool:
        """Whether the published time lies in the interval."""
        return self.estimate.iteration.low <= self.pair.published_s <= self.estimate.iteration.high

    @property
    def estimate(self) -> StepEstimate:
        return self.prediction.estimate


def choose_pairs(labels: str | None, *, models: str | None, devices: str | None) -> list[Pair]:
    """The pairs of a file, or some of them.

    Raises:
        ValueError: None are left.
    """
    rows = tomllib.loads((Path(labels) if labels else PUBLISHED).read_text(encoding="utf-8"))["pair"]
    pairs = [Pair(**row) for row in rows]
    kept = [
        pair
        for pair in pairs
        if (not models or pair.model in models.split(",")) and (not devices or pair.device in devices.split(","))
    ]
    if not kept:
        raise ValueError("no pair of those models and devices")
    return kept


def predict_pair(pair: Pair) -> Result:
    """The step of the model, captured once, predicted on the device."""
    options = StepOptions(precision=pair.precision, **pair.options)
    key = f"sanity {_hash_networks()} {pair.model} {pair.batch} {pair.length} {options}"
    workload = cached(key, lambda: _capture(pair, options))
    predictor = _find_predictor(pair)
    estimate = predictor.predict(workload, level=LEVEL)
    prediction = StepPrediction(
        workload=workload,
        device=predictor.device.name,
        method=predictor.method,
        estimate=estimate,
        warnings=predictor.warnings,
    )
    return Result(pair=pair, prediction=prediction, kernels_s=_total_kinds(workload, estimate))


def _find_predictor(pair: Pair) -> StepPredictor:
    """That of the device, or of the same chip with other figures."""
    predictor = find_step_predictor(pair.device)
    if not pair.figures:
        return predictor
    model = KernelStepModel(replace(predictor.device, **pair.figures))  # type: ignore[arg-type]
    return StepPredictor(model, device=model.device, spreads={})


@cache
def _hash_networks() -> str:
    return hashlib.sha256(Path(networks.__file__).read_bytes()).hexdigest()[:16]


def _capture(pair: Pair, options: StepOptions) -> Workload:
    model = networks.build_network(pair.model)
    return capture(model, networks.list_inputs(pair.model, pair.batch, pair.length), options=options, name=pair.model)


def _total_kinds(workload: Workload, estimate: StepEstimate) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for operator, seconds in zip(workload.operators, estimate.kernel_s.tolist(), strict=True):
        sums[f"{operator.kind} {operator.phase}"] += seconds
    sums["(waiting)"] = float(np.sum(estimate.gap_s))
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
