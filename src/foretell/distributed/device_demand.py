"""How long an iteration uses a worker's device, fitted to the measured use of jobs.

Operator times are those of steps on a machine of their own. Next to other workers operators take longer, by a factor of
each kind. The worker's own part of communication, copies and sums, is in proportion to the bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.optimize import least_squares

from foretell.core.model_files import read_numbers
from foretell.core.workload import Floats, StepPhase
from foretell.distributed._base import count_gradient_bytes, count_sent_bytes
from foretell.distributed.consumption import Case, MeasuredJob, Strategy

_REFERENCE_S = 1e-3  # of an operator: where the exponent has no effect
_DEFAULT_BYTE_S = 6e-10  # of a worker's own time for each byte
_DEFAULT_STEP_S = 1e-3  # of each iteration, independent of the network
_FACTOR_SD, _KIND_SD = 1.0, 0.5  # prior standard deviations of the common factor and of a kind's, as logarithms
_EXPONENT_SD = 0.1
_NOISE = 0.1  # of the measured use, as a logarithm
_TRANSFER_SD = 0.5  # of a job's operators, as a logarithm; those of one family are off together
_COMMON = 5  # parameters that all operators share


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Factors of operator times, and a worker's own time for communication."""

    log_factor: float = 0.0  # of all operators
    exponent: float = 0.0  # above 0, long operators are slowed down more
    reduced_byte_s: float = _DEFAULT_BYTE_S  # for each byte of an all-reduce
    served_byte_s: float = _DEFAULT_BYTE_S  # for each byte to servers and back
    step_s: float = _DEFAULT_STEP_S
    kinds: Mapping[str, float]  # logarithms of further factors

    def apply(self, case: Case) -> Case:
        """The case with operator times next to other workers."""
        return replace(
            case, operator_s=_scale(case.operator_s, _find_factors(case, self.kinds), self.log_factor, self.exponent)
        )

    def find_own(self, case: Case) -> float:
        """Seconds of a worker's own part of communication, on a whole device."""
        if case.setting.strategy is Strategy.ALLREDUCE:
            return self.step_s + self.reduced_byte_s * count_sent_bytes(case)
        return self.step_s + self.served_byte_s * 2 * count_gradient_bytes(case.workload)

    def to_record(self) -> dict[str, Any]:
        """As plain values."""
        return {name: getattr(self, name) for name in self.__slots__} | {"kinds": dict(self.kinds)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """From plain values."""
        figures = {name: value for name, value in record.items() if name != "kinds"}
        return cls(**read_numbers(figures), kinds=read_numbers(record["kinds"]))


def fit_demand(cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Demand:
    """Fit to jobs whose use of the device was measured; defaults where there is none."""
    known = [(case, used) for case, job in zip(cases, jobs, strict=True) if (used := job.used_s)]
    if not known:
        return Demand(kinds={})
    table = _Table.build([case for case, _ in known])
    logs = np.log([used for _, used in known])

    def find_residuals(parameters: Floats) -> Floats:
        residuals = (np.log(table.predict(parameters)) - logs) / _NOISE
        common, kinds = parameters[:_COMMON], parameters[_COMMON:]
        return np.concatenate([residuals, common[:2] / [_FACTOR_SD, _EXPONENT_SD], common[2:], kinds / _KIND_SD])

    found = least_squares(find_residuals, np.zeros(_COMMON + len(table.kinds)), loss="soft_l1").x
    return Demand(
        log_factor=float(found[0]),
        exponent=float(found[1]),
        reduced_byte_s=_DEFAULT_BYTE_S * float(np.exp(found[2])),
        served_byte_s=_DEFAULT_BYTE_S * float(np.exp(found[3])),
        step_s=_DEFAULT_STEP_S * float(np.exp(found[4])),
        kinds=dict(zip(table.kinds, found[_COMMON:].tolist(), strict=True)),
    )


def transfer_demand(demand: Demand, cases: Sequence[Case], jobs: Sequence[MeasuredJob]) -> Demand:
    """The demand with its common factor moved towards a few more jobs, shrunk by their expected error."""
    known = [(case, used) for case, job in zip(cases, jobs, strict=True) if (used := job.used_s)]
    if not known:
        return demand
    seconds = [_sum_operators(demand.apply(case)) for case, _ in known]
    rest = [max(used - demand.find_own(case), 0.1 * used) for case, used in known]
    offset = float(np.median(np.log(rest) - np.log(seconds)))
    weight = offset**2 / (offset**2 + _TRANSFER_SD**2 / len(known))
    return replace(demand, log_factor=demand.log_factor + offset * weight)


def _sum_operators(case: Case) -> float:
    """Seconds of the operators that a worker runs."""
    return float(sum(s for name, s in zip(_name_kinds(case), case.operator_s.tolist(), strict=True) if name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The operators of all cases that a worker runs, one after the other."""

    kinds: tuple[str, ...]
    seconds: Floats
    kind: "np.ndarray[tuple[int], np.dtype[np.int64]]"  # index of each operator's kind
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

    def predict(self, parameters: Floats) -> Floats:
        """Seconds that each case uses the device."""
        log_factor, exponent, reduced, served, step = parameters[:_COMMON]
        each = _scale(self.seconds, parameters[_COMMON:][self.kind], log_factor, exponent)
        sums = np.bincount(self.case, weights=each, minlength=len(self.reduced_bytes))
        own = self.reduced_bytes * np.exp(reduced) + self.served_bytes * np.exp(served)
        return np.asarray(sums + _DEFAULT_BYTE_S * own + _DEFAULT_STEP_S * np.exp(step))


def _scale(seconds: Floats, kind_factors: Floats, log_factor: float, exponent: float) -> Floats:
    size = np.log(np.maximum(seconds, 1e-9) / _REFERENCE_S)
    return np.asarray(seconds * np.exp(kind_factors + log_factor + exponent * size))


def _name_kinds(case: Case) -> list[str]:
    """The kind and phase of each operator; empty for those that servers run."""
    served = case.setting.strategy is Strategy.SERVERS
    return [
        "" if served and each.phase is StepPhase.UPDATE else f"{each.phase.value} {each.kind}"
        for each in case.workload.operators
    ]


def _find_factors(case: Case, kinds: Mapping[str, float]) -> Floats:
    return np.array([kinds.get(f"{each.phase.value} {each.kind}", 0.0) for each in case.workload.operators])
