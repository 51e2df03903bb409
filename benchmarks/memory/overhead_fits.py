"""Fits what steps take beyond their own blocks, and judges it on families that were left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from foretell.core.intervals import QuantileSpread
from foretell.memory.overheads import GROUPS, QUANTILES, LearnedOverheads, WorkspaceNeeds

FOLDS = 10
_SEED = 0
_ROUNDS = 30  # of weighted least squares, for the least absolute relative errors
_CLOSE = 1e-3  # a relative error below which rows weigh the same

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakCase:
    """A measured peak, and what was computed for it without overheads."""

    model: str
    family: str
    batch: int
    measured_bytes: float
    reserved_bytes: float
    needs: WorkspaceNeeds
    tensor_bytes: float = 0.0  # by those who measured, from tensors alone


def predict(cases: Sequence[PeakCase], learned: LearnedOverheads) -> Floats:
    """The memory of the device."""
    return np.array([
        each.reserved_bytes + learned.context_bytes + learned.find_workspace(each.needs) for each in cases
    ])  # fmt: skip


def fit_overheads(cases: Sequence[PeakCase], device: str) -> LearnedOverheads:
    """The overheads with the least absolute relative errors, each at least 0; errors are of families left out."""
    found = _fit_shares(cases, device)
    errors = np.log(np.array([each.measured_bytes for each in cases]) / predict_left_out(cases, device))
    groups = np.array([each.needs.group for each in cases])
    families = np.array([each.family for each in cases])
    spreads = {}
    for name in GROUPS:
        own = groups == name
        spreads[name] = _learn_spread(errors[own], len(set(families[own])))
    return replace(found, spreads=spreads)


def _learn_spread(errors: Floats, families: int) -> QuantileSpread:
    """Quantiles for a family that was not seen: a conformal bound of so many families lies a little further out."""
    chances = 0.5 + (np.linspace(0.0, 1.0, QUANTILES) - 0.5) * (1 + 1 / families)
    return QuantileSpread(quantiles=tuple(np.quantile(errors, np.clip(chances, 0.0, 1.0)).tolist()))


def predict_left_out(cases: Sequence[PeakCase], device: str) -> Floats:
    """Predictions by overheads that were fitted to other families."""
    predicted = np.empty(len(cases))
    for held in split_families([each.family for each in cases]):
        found = _fit_shares(_select(cases, ~held), device)
        predicted[held] = predict(_select(cases, held), found)
    return predicted


def judge_left_out(cases: Sequence[PeakCase], device: str) -> tuple[Floats, Floats]:
    """Predictions and 95 % upper bounds; both are learned from other families."""
    predicted, upper = np.empty(len(cases)), np.empty(len(cases))
    for held in split_families([each.family for each in cases]):
        found = fit_overheads(_select(cases, ~held), device)
        own = _select(cases, held)
        predicted[held] = predict(own, found)
        chances = [found.spreads[each.needs.group].upper(0.05) for each in own]
        upper[held] = predicted[held] * np.exp(chances)
    return predicted, upper


def predict_by_constant(cases: Sequence[PeakCase], computed: Floats) -> Floats:
    """What was computed and a constant of other families, to compare with."""
    missing = np.array([each.measured_bytes for each in cases]) - computed
    predicted = np.empty(len(cases))
    for held in split_families([each.family for each in cases]):
        predicted[held] = computed[held] + np.median(missing[~held])
    return predicted


def split_families(families: Sequence[str]) -> Iterator[Mask]:
    """Which rows are left out together: whole families, in folds of about equal size."""
    names, counts = np.unique(families, return_counts=True)
    order = np.random.default_rng(_SEED).permutation(len(names))
    folds: list[list[str]] = [[] for _ in range(FOLDS)]
    sizes = np.zeros(FOLDS)
    for place in sorted(order, key=lambda place: -counts[place]):
        smallest = int(sizes.argmin())
        folds[smallest].append(str(names[place]))
        sizes[smallest] += counts[place]
    for fold in folds:
        if fold:
            yield np.isin(families, fold)


def _select(cases: Sequence[PeakCase], mask: Mask) -> list[PeakCase]:
    return [each for each, kept in zip(cases, mask, strict=True) if kept]


def _fit_shares(cases: Sequence[PeakCase], device: str) -> LearnedOverheads:
    measured = np.array([each.measured_bytes for each in cases])
    missing = (measured - [each.reserved_bytes for each in cases]) / measured
    needs = [[1.0, each.needs.layout_bytes, each.needs.winograd_bytes] for each in cases]
    relative = np.array(needs) / measured[:, None]
    scale = relative.max(axis=0)
    weights = np.ones(len(cases))
    shares = np.zeros(3)
    for _round in range(_ROUNDS):
        root = np.sqrt(weights)
        shares, _ = nnls(relative / scale * root[:, None], missing * root)
        weights = 1 / np.maximum(np.abs(missing - relative / scale @ shares), _CLOSE)
    context, layout, winograd = shares / scale
    return LearnedOverheads(context_bytes=float(context), layout=float(layout), winograd=float(winograd), device=device)
