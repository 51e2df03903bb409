"""Every method on the same traces: learn from some families, answer for others."""

import logging
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.ets.methods import make_model
from benchmarks.ets.table import Answer, Row, build_row
from benchmarks.ets.traces import TEST_FAMILIES, TRAIN_FAMILIES, Trace, read_traces
from foretell.core.devices import get_device
from foretell.steps._base import Refinable, StepModel, StepTimer, Transferable
from foretell.steps.replay import ReplayModel
from foretell.steps.step_predictor import StepPredictor, measure_spreads

PROFILES = (1, 2)  # of a variant, measured before it is asked about
TRANSFER_PROFILES = (0, 3, 10, 300)  # traces of the other GPU
CHOSEN = ((0.9,), (0.4, 0.95))  # which profiles one would make: where a variant's traces are sorted by images x area
TEST_SHARE = 0.1
LEVEL = 0.9
_SEED = 0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared."""

    gpu: str = "T4"
    train: tuple[str, ...] | None = None  # families; the published ones unless said
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
    """Rows of every method, and what they were asked.

    Raises:
        ValueError: if the plan leaves nothing to learn from or to judge.
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
        rows += _judge(name, model, test, fit_s=fit_s, seen="as it is" if plan.transfer else "zero-shot")
        if isinstance(model, ReplayModel) and not plan.random and not plan.transfer:
            about |= _judge_intervals(model, train, test)
        rows += _judge_transferred(name, model, test, profiles, plan)
        if isinstance(model, Refinable) and not plan.random and not plan.transfer:
            rows += [_judge_refined(name, model, test, count, plan.draws) for count in PROFILES]
            rows += [_judge_chosen(name, model, test, shares) for shares in CHOSEN]
    return rows, about


def split_traces(plan: Plan) -> tuple[list[Trace], list[Trace], list[Trace]]:
    """What to learn from, what to judge on, and what else may be measured on the GPU that is judged."""
    if plan.random:
        return (*_split_random(_read(plan, plan.gpu, (*plan.train_families, *plan.test_families))), [])
    both = sorted(set(plan.train_families) & set(plan.test_families))
    if both:
        raise ValueError(f"{both[0]!r} is to be learned from and judged on; name it once")
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
    """So many of each family."""
    random = np.random.default_rng(_SEED)
    kept: set[int] = set()
    for family in sorted({trace.family for trace in traces}):
        places = [place for place, trace in enumerate(traces) if trace.family == family]
        kept.update(random.permutation(places)[:count].tolist())
    return [trace for place, trace in enumerate(traces) if place in kept]


def _split_random(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace]]:
    order = np.random.default_rng(_SEED).permutation(len(traces))
    tested = set(order[: round(len(traces) * TEST_SHARE)].tolist())
    train = [trace for place, trace in enumerate(traces) if place not in tested]
    return train, [traces[place] for place in sorted(tested)]


def _judge(name: str, model: StepTimer, test: Sequence[Trace], *, seen: str, fit_s: float | None = None) -> list[Row]:
    begin = time.perf_counter()
    answers = _answer(model, test)
    return [build_row(name, [answers], seen=seen, fit_s=fit_s, predict_s=time.perf_counter() - begin)]


def _answer(model: StepTimer, traces: Sequence[Trace]) -> list[Answer]:
    told = model.predict([trace.step.workload for trace in traces])
    return [
        Answer(
            family=trace.family,
            clean=trace.clean,
            told_s=times.iteration_s,
            measured_s=trace.step.iteration_s,
        )
        for trace, times in zip(traces, told, strict=True)
    ]


def _judge_intervals(model: ReplayModel, train: Sequence[Trace], test: Sequence[Trace]) -> dict[str, float]:
    """How many of the traces lie within bounds that the training families alone set, and how wide those are."""
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


def _judge_transferred(
    name: str, model: StepModel, test: Sequence[Trace], profiles: Sequence[Trace], plan: Plan
) -> list[Row]:
    """The model carried over to the other GPU, with more and more of what can be measured there."""
    if plan.transfer is None or not isinstance(model, Transferable):
        return []
    rows = []
    order = np.random.default_rng(_SEED).permutation(len(profiles))
    for count in TRANSFER_PROFILES:
        steps = [profiles[place].step for place in order[:count]]
        rows += _judge(name, model.transfer(get_device(plan.transfer), steps), test, seen=f"+ {count} traces")
    return rows


def _judge_refined(name: str, model: Refinable, test: Sequence[Trace], count: int, draws: int) -> Row:
    """Each variant with some of its traces measured before; these are not judged."""
    begin = time.perf_counter()
    answers = [
        [answer for variant in _group(test) for answer in _answer_refined(model, variant, count, draw)]
        for draw in range(draws)
    ]
    seen = f"+ {count} profile{'s' * (count > 1)}"
    return build_row(name, answers, seen=seen, predict_s=(time.perf_counter() - begin) / draws)


def _answer_refined(model: Refinable, variant: Sequence[Trace], count: int, draw: int) -> list[Answer]:
    random = np.random.default_rng([_SEED, draw, zlib.crc32(variant[0].model.encode())])
    order = random.permutation(len(variant))
    others = [variant[place] for place in sorted(order[count:])]
    if not others:
        return []
    return _answer(model.refine([variant[place].step for place in order[:count]]), others)


def _judge_chosen(name: str, model: Refinable, test: Sequence[Trace], shares: Sequence[float]) -> Row:
    """Each variant after profiles of a size that one would choose; these are not judged."""
    answers = []
    for variant in _group(test):
        order = sorted(variant, key=lambda trace: (trace.batch * trace.size**2, trace.batch))
        places = {min(int(share * len(order)), len(order) - 1) for share in shares}
        others = [trace for place, trace in enumerate(order) if place not in places]
        if others:
            answers += _answer(model.refine([order[place].step for place in places]), others)
    return build_row(name, [answers], seen=f"+ {len(shares)} chosen")


def _group(traces: Sequence[Trace]) -> list[list[Trace]]:
    """By variant."""
    groups: dict[str, list[Trace]] = {}
    for trace in traces:
        groups.setdefault(trace.model, []).append(trace)
    return list(groups.values())
