"""Compares methods on the same traces: fitted on some families, applied to others."""

import logging
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.ets.methods import make_model
from benchmarks.ets.table import Result, Row, build_row
from benchmarks.ets.traces import TEST_FAMILIES, TRAIN_FAMILIES, Trace, read_traces
from foretell.core.devices import get_device
from foretell.steps._base import Refinable, StepModel, StepTimer, Transferable
from foretell.steps.replay import ReplayModel
from foretell.steps.step_predictor import StepPredictor, measure_spreads

PROFILES = (1, 2)  # of a variant, used for its other traces
TRANSFER_PROFILES = (0, 3, 10, 300)  # traces of the other GPU
CHOSEN = (
    (0.9,),
    (0.4, 0.95),
)  # profiles a user would choose: shares of the traces of a variant, sorted by images x area
TEST_SHARE = 0.1
LEVEL = 0.9
_SEED = 0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared, and on which traces."""

    gpu: str = "T4"
    train: tuple[str, ...] | None = None  # families; by default those of the published split
    test: tuple[str, ...] | None = None
    random: bool = False
    sample: int | None = None
    draws: int = 5
    transfer: str | None = None

    @property
    def train_families(self) -> tuple[str, ...]:
        return self.train or TRAIN_FAMILIES

    @property
    def test_families(self) -> tuple[str, ...]:
        return self.test or TEST_FAMILIES


def compare(plan: Plan, names: Sequence[str]) -> tuple[list[Row], dict[str, Any]]:
    """Rows of every method, and the traces they are of.

    Raises:
        ValueError: The plan leaves no traces for fitting or for comparing.
    """
    train, test, profiles = split_traces(plan)
    about = {"gpu": plan.transfer or plan.gpu, "learned from": len(train), "judged on": len(test)}
    rows = []
    for name in names:
        _log.info("%s", name)
        model = make_model(name, plan.gpu)
        begin = time.perf_counter()
        model.fit([trace.step for trace in train])
        fit_s = time.perf_counter() - begin
        rows += _score(name, model, test, fit_s=fit_s, seen="as it is" if plan.transfer else "zero-shot")
        if isinstance(model, ReplayModel) and not plan.random and not plan.transfer:
            about |= _score_intervals(model, train, test)
        rows += _score_transferred(name, model, test, profiles, plan)
        if isinstance(model, Refinable) and not plan.random and not plan.transfer:
            rows += [_score_refined(name, model, test, count, plan.draws) for count in PROFILES]
            rows += [_score_chosen(name, model, test, shares) for shares in CHOSEN]
    return rows, about


def split_traces(plan: Plan) -> tuple[list[Trace], list[Trace], list[Trace]]:
    """Traces for fitting, traces for comparing, and further traces of the compared GPU."""
    if plan.random:
        return (*_split_random(_read(plan, plan.gpu, (*plan.train_families, *plan.test_families))), [])
    both = sorted(set(plan.train_families) & set(plan.test_families))
    if both:
        raise ValueError(f"{both[0]!r} is in the training and in the test families; name it once")
    train = _read(plan, plan.gpu, plan.train_families)
    test = _read(plan, plan.transfer or plan.gpu, plan.test_families)
    return train, test, _read(plan, plan.transfer, plan.train_families) if plan.transfer else []


def _read(plan: Plan, gpu: str, families: Sequence[str]) -> list[Trace]:
    found = read_traces(gpu, list(families))
    missing = [family for family in families if not any(trace.family == family for trace in found)]
    if missing:
        raise ValueError(f"no traces of {missing[0]!r} on {gpu!r}; name another family or GPU")
    return found if plan.sample is None else _sample(found, plan.sample)


def _sample(traces: Sequence[Trace], count: int) -> list[Trace]:
    """``count`` traces of each family."""
    random = np.random.default_rng(_SEED)
    kept: set[int] = set()
    for family in sorted({trace.family for trace in traces}):
        positions = [position for position, trace in enumerate(traces) if trace.family == family]
        kept.update(random.permutation(positions)[:count].tolist())
    return [trace for position, trace in enumerate(traces) if position in kept]


def _split_random(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace]]:
    order = np.random.default_rng(_SEED).permutation(len(traces))
    tested = set(order[: round(len(traces) * TEST_SHARE)].tolist())
    train = [trace for position, trace in enumerate(traces) if position not in tested]
    return train, [traces[position] for position in sorted(tested)]


def _score(name: str, model: StepTimer, test: Sequence[Trace], *, seen: str, fit_s: float | None = None) -> list[Row]:
    begin = time.perf_counter()
    results = _predict(model, test)
    return [build_row(name, [results], seen=seen, fit_s=fit_s, predict_s=time.perf_counter() - begin)]


def _predict(model: StepTimer, traces: Sequence[Trace]) -> list[Result]:
    predicted = model.predict([trace.step.workload for trace in traces])
    return [
        Result(
            family=trace.family,
            clean=trace.clean,
            predicted_s=times.iteration_s,
            measured_s=trace.step.iteration_s,
        )
        for trace, times in zip(traces, predicted, strict=True)
    ]


def _score_intervals(model: ReplayModel, train: Sequence[Trace], test: Sequence[Trace]) -> dict[str, float]:
    """Coverage and width of the intervals that come from the training families alone."""
    families = [trace.family for trace in train]
    spreads = measure_spreads(ReplayModel, [trace.step for trace in train], families, model.device)
    predictor = StepPredictor(model, device=model.device, spreads=spreads)
    found = [predictor.predict(trace.step.workload, level=LEVEL).iteration for trace in test]
    inside = [one.low <= trace.step.iteration_s <= one.high for one, trace in zip(found, test, strict=True)]
    clean = [held for held, trace in zip(inside, test, strict=True) if trace.clean]
    return {
        "within 90 % bounds, %": round(100 * float(np.mean(inside)), 1),
        "of the clean ones, %": round(100 * float(np.mean(clean)), 1),
        "their width, % of the value": round(
            100 * float(np.mean([(one.high - one.low) / one.value for one in found])), 1
        ),
    }


def _score_transferred(
    name: str, model: StepModel, test: Sequence[Trace], profiles: Sequence[Trace], plan: Plan
) -> list[Row]:
    """The model transferred to the other GPU, with an increasing number of its traces."""
    if plan.transfer is None or not isinstance(model, Transferable):
        return []
    rows = []
    order = np.random.default_rng(_SEED).permutation(len(profiles))
    for count in TRANSFER_PROFILES:
        steps = [profiles[position].step for position in order[:count]]
        rows += _score(name, model.transfer(get_device(plan.transfer), steps), test, seen=f"+ {count} traces")
    return rows


def _score_refined(name: str, model: Refinable, test: Sequence[Trace], count: int, draws: int) -> Row:
    """Each variant with some of its traces as profiles, which are not part of the errors."""
    begin = time.perf_counter()
    results = [
        [result for variant in _group(test) for result in _predict_refined(model, variant, count, draw)]
        for draw in range(draws)
    ]
    seen = f"+ {count} profile{'s' * (count > 1)}"
    return build_row(name, results, seen=seen, predict_s=(time.perf_counter() - begin) / draws)


def _predict_refined(model: Refinable, variant: Sequence[Trace], count: int, draw: int) -> list[Result]:
    random = np.random.default_rng([_SEED, draw, zlib.crc32(variant[0].model.encode())])
    order = random.permutation(len(variant))
    others = [variant[position] for position in sorted(order[count:])]
    if not others:
        return []
    return _predict(model.refine([variant[position].step for position in order[:count]]), others)


def _score_chosen(name: str, model: Refinable, test: Sequence[Trace], shares: Sequence[float]) -> Row:
    """Each variant with profiles of sizes a user would choose, which are not part of the errors."""
    results = []
    for variant in _group(test):
        order = sorted(variant, key=lambda trace: (trace.batch * trace.size**2, trace.batch))
        positions = {min(int(share * len(order)), len(order) - 1) for share in shares}
        others = [trace for position, trace in enumerate(order) if position not in positions]
        if others:
            results += _predict(model.refine([order[position].step for position in positions]), others)
    return build_row(name, [results], seen=f"+ {len(shares)} chosen")


def _group(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Traces by variant."""
    groups: dict[str, list[Trace]] = {}
    for trace in traces:
        groups.setdefault(trace.model, []).append(trace)
    return list(groups.values())
