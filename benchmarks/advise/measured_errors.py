"""Measured steps of whole models, predicted by what was learned from other families, with their intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.advise import profet_steps
from benchmarks.gpus import neusight_steps, timm_steps
from benchmarks.gpus.step_spreads import fit_spread
from benchmarks.gpus.whole_steps import (
    StepCase,
    UnseenStep,
    apply_levels,
    build_cases,
    leave_devices_out,
    leave_families_out,
)
from foretell.core.prediction import Estimate
from foretell.steps.kernels._base import Evidence
from foretell.steps.kernels.step_corrections import load_corrections
from foretell.steps.kernels.step_intervals import StepSpread

A_FAMILY = 2  # models of each of timm's families
LEVEL = 0.9
LANGUAGE = "language models"  # the protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLabel:
    """A measured step and its prediction by code, which knows neither its family nor, in part, its device."""

    protocol: str
    step: UnseenStep
    estimate: Estimate

    @property
    def application(self) -> str:
        """What is the same application on any device, in any batch."""
        label = self.step.case.label
        return f"{label.source} {label.model} {label.mode} {label.precision}"

    @property
    def device(self) -> str:
        """The device that it was measured on."""
        return self.step.case.device.name

    @property
    def family(self) -> str:
        """Of the network."""
        return self.step.case.label.family


@cache
def list_predicted() -> tuple[PredictedLabel, ...]:
    """All measured steps: of families never seen, on devices seen and on devices left out."""
    timm = build_cases(timm_steps.list_labels(A_FAMILY))
    neusight = [_keep(case) for case in build_cases(neusight_steps.list_labels())]
    seen, left_out = leave_families_out(timm), leave_devices_out(timm)
    amd = leave_devices_out([each.case for each in neusight if each.case.device.vendor == "AMD"])
    known = [each for each in neusight if each.seen]
    others = [each for each in neusight if not each.seen and each.case.device.vendor != "AMD"]
    found = [
        *_bound("other families", seen, [*known, *seen], [*amd, *left_out]),
        *_bound("device left out too", left_out, [*known, *seen], [*amd, *left_out]),
        *_bound(LANGUAGE, [*known, *others, *amd], seen, left_out),
    ]
    shipped = load_corrections()
    rough = [
        replace(_keep(case), predicted_s=apply_levels(case, shipped.levels))
        for case in build_cases(profet_steps.list_labels())
    ]
    return (*found, *(_place("another framework", each, shipped.spread) for each in rough))


def _keep(case: StepCase) -> UnseenStep:
    """As the kernels alone predict it: they were not learned from whole steps."""
    return UnseenStep(case=case, predicted_s=case.predicted_s, seen=case.device.name in neusight_steps.SEEN)


def _bound(
    protocol: str, steps: Sequence[UnseenStep], seen: Sequence[UnseenStep], left_out: Sequence[UnseenStep]
) -> Iterable[PredictedLabel]:
    """Intervals from the other half of the families."""
    families = sorted({each.case.label.family for each in (*steps, *seen, *left_out)})
    for half in (set(families[::2]), set(families[1::2])):
        spread = fit_spread(
            [each for each in seen if each.case.label.family in half],
            left_out_steps=[each for each in left_out if each.case.label.family in half],
        )
        yield from (_place(protocol, each, spread) for each in steps if each.case.label.family not in half)


def _place(protocol: str, step: UnseenStep, spread: StepSpread) -> PredictedLabel:
    evidence = Evidence.MEASURED if step.seen else Evidence.FIGURES
    times = replace(step.case.times, iteration_s=step.predicted_s, evidence={str(evidence): 1.0})
    return PredictedLabel(protocol=protocol, step=step, estimate=spread.bound(times, LEVEL))
