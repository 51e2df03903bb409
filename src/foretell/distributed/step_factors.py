"""What a few measured steps on some GPUs change in predictions of others: factors of the parts of a step.

A batch on a GPU takes as long as its kernels or its host, whichever is longer; exchanges inside of layers add to it,
pipelines wait as many times as they are deep, and exchanges of gradients and a fixed time of each batch come on top.
Each part has a factor that is near 1 unless the measurements say otherwise; what remains is smoothed over layouts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.core.errors import Mistake, SpecError
from foretell.core.prediction import Estimate
from foretell.core.workload import Floats
from foretell.distributed.parallel_results import ParallelStep

_SHARPNESS = 4.0  # of the longer one of kernels and host
_NAMES = ("compute", "host", "tensor", "data", "bubble", "batch")
_EXPECTED = np.log([1.0, 1.0, 1.0, 1.0, 1.0, 1e-3])  # the last are seconds
_SPREAD = np.array([0.3, 0.7, 0.5, 0.5, 0.3, 2.0])
_NOISE = 0.06  # of measured steps, of the logarithm
_LEAST = 3  # measured steps


class StepFactors:
    """Factors of the parts of steps, and a smooth rest, learned from measured steps of one kind of model."""

    def fit(self, steps: Sequence[ParallelStep], seconds: Sequence[float]) -> "StepFactors":
        """Learn from predictions and what was measured.

        Raises:
            SpecError: There are too few, or a time is none.
        """
        _check(steps, seconds)
        from scipy.optimize import least_squares

        columns, logs = _Columns.of(steps), np.log(np.asarray(seconds, dtype=float))

        def find_residuals(factors: Floats) -> Floats:
            return np.concatenate([(columns.add_up(factors) - logs) / _NOISE, (factors - _EXPECTED) / _SPREAD])

        self.factors_ = least_squares(find_residuals, _EXPECTED, loss="soft_l1", f_scale=1.5).x
        rest = logs - columns.add_up(self.factors_)
        self.rest_ = _Smoother.fit(columns.places, rest)
        self.errors_ = np.sort(np.abs(self.rest_.leave_out()))
        return self

    def predict(self, steps: Sequence[ParallelStep], *, level: float = 0.9) -> list[Estimate]:
        """The corrected times."""
        columns = _Columns.of(steps)
        logs = columns.add_up(self.factors_) + self.rest_.predict(columns.places)
        width = float(np.quantile(self.errors_, min(1.0, level * (1 + 1 / len(self.errors_)))))
        return [
            Estimate(value=value, low=value * np.exp(-width), high=value * np.exp(width), level=level)
            for value in np.exp(logs).tolist()
        ]

    @property
    def factors(self) -> dict[str, float]:
        """By part; of each batch, seconds."""
        return dict(zip(_NAMES, np.exp(self.factors_).tolist(), strict=True))


def _check(steps: Sequence[ParallelStep], seconds: Sequence[float]) -> None:
    wrong = [
        Mistake(place="seconds", found=f"{each:g}", expected="a finite time above 0")
        for each in seconds
        if not 0 < each < math.inf
    ]
    if len(steps) < _LEAST:
        wrong.append(Mistake(place="measured", found=f"{len(steps)} steps", expected=f"{_LEAST} or more"))
    if len(steps) != len(seconds):
        expected = f"one for each of the {len(steps)} steps"
        wrong.append(Mistake(place="seconds", found=f"{len(seconds)} times", expected=expected))
    if wrong:
        raise SpecError("the measured steps", wrong)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The parts of steps."""

    batches: Floats
    compute: Floats  # of a batch
    host: Floats
    tensor: Floats
    data: Floats
    waits: Floats  # batches in whose time a pipeline waits
    places: Floats  # logarithms of sizes, over which the rest is smooth

    @classmethod
    def of(cls, steps: Sequence[ParallelStep]) -> "_Columns":
        batches = np.array([step.micro_batches for step in steps], dtype=float)
        parts = {
            name: np.array([step.parts[name] for step in steps]) for name in ("compute", "tensor", "data", "bubble")
        }
        compute, tensor = parts["compute"] / batches, parts["tensor"] / batches
        sizes = [
            (step.layout.tensor_parallel, step.layout.pipeline_parallel, step.layout.copies, step.workload.batch)
            for step in steps
        ]
        return cls(
            batches=batches,
            compute=compute,
            host=np.array([step.host_s for step in steps]),
            tensor=tensor,
            data=parts["data"],
            waits=parts["bubble"] / np.maximum(compute + tensor, 1e-12),
            places=np.column_stack([np.log(np.array(sizes, dtype=float)), np.log(compute)]),
        )

    def add_up(self, factors: Floats) -> Floats:
        """Logarithms of the seconds of steps."""
        compute, host, tensor, data, bubble, batch = np.exp(factors)
        busy = ((compute * self.compute) ** _SHARPNESS + (host * self.host) ** _SHARPNESS) ** (1 / _SHARPNESS)
        each = busy + tensor * self.tensor
        return np.asarray(np.log((self.batches + bubble * self.waits) * each + data * self.data + batch * self.batches))


_LENGTHS, _NOISES = (1.0, 2.0, 4.0), (0.3, 1.0, 3.0)  # of standard deviations; of the variance of what is smooth


@dataclass(frozen=True, slots=True)
class _Smoother:
    """A Gaussian process whose length and noise are chosen by leaving out each row."""

    centre: Floats
    scale: Floats
    points: Floats
    weights: Floats
    inverse: Floats
    length: float

    @classmethod
    def fit(cls, places: Floats, rest: Floats) -> "_Smoother":
        scale = places.std(axis=0)
        scale = np.where(scale > 1e-9, scale, 1.0)
        points = (places - places.mean(axis=0)) / scale
        built = [
            cls._build(places.mean(axis=0), scale, points, rest, length, noise)
            for length in _LENGTHS
            for noise in _NOISES
        ]
        return min(built, key=lambda each: float(np.mean(each.leave_out() ** 2)))

    @classmethod
    def _build(
        cls, centre: Floats, scale: Floats, points: Floats, rest: Floats, length: float, noise: float
    ) -> "_Smoother":
        inverse = np.asarray(np.linalg.inv(_compare(points, points, length) + noise * np.eye(len(points))), dtype=float)
        return cls(centre, scale, points, inverse @ rest, inverse, length)

    def predict(self, places: Floats) -> Floats:
        """The rest at other places."""
        return np.asarray(_compare((places - self.centre) / self.scale, self.points, self.length) @ self.weights)

    def leave_out(self) -> Floats:
        """The error of each row if it is left out."""
        return np.asarray(self.weights / np.diag(self.inverse))


def _compare(some: Floats, others: Floats, length: float) -> Floats:
    distances = ((some[:, None] - others[None]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * distances / length**2))
