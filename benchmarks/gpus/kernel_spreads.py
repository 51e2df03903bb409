"""How far models of products and attention err on devices they know, on similar ones, and on others."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd

from benchmarks.gpus.calibration_choice import Build, choose_kernels
from foretell.core.devices import get_device
from foretell.core.workload import Floats
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.law_times import LawTimeModel

_JUDGED = 600  # of a device and precision
_NINETY = 1.645  # standard deviations of a normal distribution within which 90 % lie

Fit = Callable[..., LawTimeModel]  # type: ignore[type-arg]


def learn_spreads(rows: pd.DataFrame, devices: Iterable[str], *, fit: Fit, build: Build) -> dict[str, float]:
    """By evidence, the spread of logarithms of errors of a kernel; ``level`` is what all of a device share."""
    errors: dict[str, list[Floats]] = {}
    for name in devices:
        model = fit(rows, without=[name])
        for precision, part in _split(rows[rows.device == name]):
            device = get_device(name)
            chosen, rest = choose_kernels(part, device, build)
            calibrated = model.calibrate(build(chosen), device, chosen.seconds.to_numpy())
            rest = rest.sample(min(_JUDGED, len(rest)), random_state=0)
            for each, evidence in (
                (model, model.find_evidence(device, precision)),
                (calibrated, Evidence.MEASURED),
            ):
                predicted = each.predict(build(rest), device)
                errors.setdefault(str(evidence), []).append(np.log(rest.seconds.to_numpy() / predicted))
    return {name: value for evidence, parts in errors.items() for name, value in _describe(evidence, parts).items()}


def _split(rows: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    if "precision" not in rows:
        return [("bf16", rows)]
    return [(str(precision), part) for precision, part in rows.groupby("precision")]


def _describe(evidence: str, parts: Sequence[Floats]) -> dict[str, float]:
    own = np.concatenate(parts)
    levels = np.array([np.median(part) for part in parts])
    return {
        evidence: round(float(np.quantile(np.abs(own), 0.9) / _NINETY), 4),
        f"{evidence} level": round(float(np.sqrt((levels**2).mean())), 4),
    }
