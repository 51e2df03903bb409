"""What an iteration demands of a worker's device, learned from what jobs used of it.

Times of operators come from elsewhere, often from steps that ran alone. Beside others they differ, and not all alike:
each kind of operator gets a factor of its own, which leans on what is common to all. What a worker does for its
communication, copies and sums, is in proportion to the bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.optimize import least_squares

from foretell.core.model_checks import read_numbers
from foretell.core.workload import Floats, StepPhase
from foretell.distributed.consumption import Case, MeasuredJob, Strategy
from foretell.distributed.consumption_targets import count_gradient_bytes, count_sent_bytes

_USUAL_S = 1e-3  # of an operator: where a bend has no effect
_USUAL_BYTE_S = 6e-10  # of a worker's own time for each byte
_USUAL_STEP_S = 1e-3  # of each iteration, whatever it does
_LOOSE, _TIGHT = 1.0, 0.5  # how far from the usual a number of all, and one of a kind, may well be, as logarithms
_BENT = 0.1
_NOISE = 0.1  # of what jobs used, as a logarithm
_STRAY = 0.5  # of a few jobs' operators from what others tell, as a logarithm: those of a family stray together
_NUMBERS = 5  # that all operators share


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Factors of operators, and what communication costs a worker."""

    pace: float = 0.0  # logarithm of a factor of all operators
    bend: float = 0.0  # by how much long operators are longer still
    reduced_byte_s: float = _USUAL_BYTE_S  # for each byte that goes round
    served_byte_s: float = _USUAL_BYTE_S  # for each byte to servers and back
    step_s: float = _USUAL_STEP_S
    kinds: Mapping[str, float]  # logarithms of further factors

    def apply(self, case: Case) -> Case:
        """The case with operators as long as they are beside others."""
        return replace(
            case, operator_s=_stretch(case.operator_s, _find_factors(case, self.kinds), self.pace, self.bend)
        )

    def find_own(self, case: Case) -> float:
        """Seconds of a worker's own part in communication, on a device of its own."""
        if case.setting.strategy is Strategy.ALLREDUCE:
            return self.step_s + self.reduced_byte_s * count_sent_bytes(case)
        return self.step_s + self.served_byte_s * 2 * count_gradient_bytes(case.workload)

    def to_record(self) -> dict[str, Any]:
        """Plain facts."""
        return {name: getattr(self, name) for name in self.__slots__} | {"kinds": dict(self.kinds)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The demand of such facts."""
        figures = {name: value for name, value in record.items() if name != "kinds"}
        return cls(**read_numbers(figures), kinds=read_numbers(record["kinds"]))


def fit_demand(cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Demand:
    """Learn from jobs whose use of the device was seen; what is usual where there are none."""
    known = [(case, used) for case, job in zip(cases, jobs, strict=True) if (used := job.used_s)]
    if not known:
        return Demand(kinds={})
    table = _Table.build([case for case, _ in known])
    logs = np.log([used for _, used in known])

    def misses(numbers: Floats) -> Floats:
        off = (np.log(table.tell(numbers)) - logs) / _NOISE
        return np.concatenate([off, numbers[:2] / [_LOOSE, _BENT], numbers[2:_NUMBERS], numbers[_NUMBERS:] / _TIGHT])

    found = least_squares(misses, np.zeros(_NUMBERS + len(table.kinds)), loss="soft_l1").x
    return Demand(
        pace=float(found[0]),
        bend=float(found[1]),
        reduced_byte_s=_USUAL_BYTE_S * float(np.exp(found[2])),
        served_byte_s=_USUAL_BYTE_S * float(np.exp(found[3])),
        step_s=_USUAL_STEP_S * float(np.exp(found[4])),
        kinds=dict(zip(table.kinds, found[_NUMBERS:].tolist(), strict=True)),
    )


def move_demand(demand: Demand, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Demand:
    """The demand at the pace of some more jobs, believed as far as it stands out from how jobs stray."""
    known = [(case, used) for case, job in zip(cases, jobs, strict=True) if (used := job.used_s)]
    if not known:
        return demand
    seconds = [_sum_operators(demand.apply(case)) for case, _ in known]
    rest = [max(used - demand.find_own(case), 0.1 * used) for case, used in known]
    miss = float(np.median(np.log(rest) - np.log(seconds)))
    believed = miss**2 / (miss**2 + _STRAY**2 / len(known))
    return replace(demand, pace=demand.pace + miss * believed)


def _sum_operators(case: Case) -> float:
    """Seconds of those that a worker runs."""
    return float(sum(s for name, s in zip(_name_kinds(case), case.operator_s.tolist(), strict=True) if name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """All operators of some cases that a worker runs, in one row."""

    kinds: tuple[str, ...]
    seconds: Floats
    kind: "np.ndarray[tuple[int], np.dtype[np.int64]]"  # place of each operator's
    case: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    reduced_bytes: Floats  # of each case
    served_bytes: Floats

    @classmethod
    def build(cls, cases: Sequence[Case]) -> "_Table":
        found: dict[str, int] = {}
        seconds, kind, owner = [], [], []
        for place, case in enumerate(cases):
            for name, each in zip(_name_kinds(case), case.operator_s.tolist(), strict=True):
                if name:
                    seconds.append(each)
                    kind.append(found.setdefault(name, len(found)))
                    owner.append(place)
        reduced = np.array([case.setting.strategy is Strategy.ALLREDUCE for case in cases])
        served = np.array([2 * count_gradient_bytes(case.workload) for case in cases])
        return cls(
            kinds=tuple(found),
            seconds=np.array(seconds),
            kind=np.array(kind),
            case=np.array(owner),
            reduced_bytes=np.where(reduced, [count_sent_bytes(case) for case in cases], 0.0),
            served_bytes=np.where(reduced, 0.0, served),
        )

    def tell(self, numbers: Floats) -> Floats:
        """Seconds that each case demands."""
        pace, bend, reduced, served, step = numbers[:_NUMBERS]
        each = _stretch(self.seconds, numbers[_NUMBERS:][self.kind], pace, bend)
        sums = np.bincount(self.case, weights=each, minlength=len(self.reduced_bytes))
        own = self.reduced_bytes * np.exp(reduced) + self.served_bytes * np.exp(served)
        return np.asarray(sums + _USUAL_BYTE_S * own + _USUAL_STEP_S * np.exp(step))


def _stretch(seconds: Floats, factors: Floats, pace: float, bend: float) -> Floats:
    size = np.log(np.maximum(seconds, 1e-9) / _USUAL_S)
    return np.asarray(seconds * np.exp(factors + pace + bend * size))


def _name_kinds(case: Case) -> list[str]:
    """Of each operator, with its phase; nothing for those that servers run."""
    served = case.setting.strategy is Strategy.SERVERS
    return [
        "" if served and each.phase is StepPhase.UPDATE else f"{each.phase.value} {each.kind}"
        for each in case.workload.operators
    ]


def _find_factors(case: Case, kinds: Mapping[str, float]) -> Floats:
    return np.array([kinds.get(f"{each.phase.value} {each.kind}", 0.0) for each in case.workload.operators])
