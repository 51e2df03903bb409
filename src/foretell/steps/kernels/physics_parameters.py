"""The few parameters of a law of physics: fitted over all devices, and again to a few measurements of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from foretell.core.workload import Floats

Law: TypeAlias = Callable[[Floats], Floats]  # logarithms of the parameters to logarithms of seconds

_ROBUST = 0.1  # errors of logarithms above this count less than their square
_STEPS = 8
_PRIOR = 0.1  # how much parameters that no measurement depends on are held where they start
_TINY = 1e-4


@dataclass(frozen=True, slots=True)
class Parameter:
    """A positive number and how much it differs from device to device, as a factor (logarithm)."""

    name: str
    start: float
    least: float
    most: float
    spread: float


def start_values(parameters: Sequence[Parameter]) -> Floats:
    return np.log([one.start for one in parameters])


def fit_parameters(parameters: Sequence[Parameter], law: Law, seconds: Floats, weights: Floats) -> Floats:
    """The parameters of many measurements on many devices."""
    from scipy.optimize import least_squares

    logs, scale = np.log(seconds), np.sqrt(weights)
    start, spread = start_values(parameters), np.array([one.spread for one in parameters])

    def errors(theta: Floats) -> Floats:
        return np.concatenate([(law(theta) - logs) * scale, _PRIOR * (theta - start) / spread])

    found = least_squares(
        errors,
        start,
        bounds=_find_bounds(parameters),
        x_scale=spread,
        diff_step=[_TINY],
        loss="soft_l1",
        f_scale=_ROBUST,
        max_nfev=15,
    )
    return np.asarray(found.x)


def adapt_parameters(parameters: Sequence[Parameter], law: Law, logs: Floats, *, near: Floats, noise: float) -> Floats:
    """The parameters of a few measurements of one device, not far from those of all (``near``)."""
    spread = np.array([one.spread for one in parameters])
    least, most = _find_bounds(parameters)
    theta = near.copy()
    for _ in range(_STEPS):
        errors = logs - law(theta)
        slopes = np.stack([(law(theta + step) - law(theta)) / _TINY for step in _TINY * np.eye(len(theta))], axis=1)
        weights = 1 / (noise**2 * np.sqrt(1 + (errors / (3 * noise)) ** 2))
        matrix = slopes.T @ (weights[:, None] * slopes) + np.diag(1 / spread**2)
        step = np.linalg.solve(matrix, slopes.T @ (weights * errors) - (theta - near) / spread**2)
        theta = np.clip(theta + np.clip(step, -spread, spread), least, most)
    return theta


def _find_bounds(parameters: Sequence[Parameter]) -> tuple[Floats, Floats]:
    return np.log([one.least for one in parameters]), np.log([one.most for one in parameters])
