"""Warnings of results as values: a code for programs, a sentence for people, and its numbers.

Text, JSON and pages are all rendered from :class:`PredictionWarning`; :data:`WARNING_CODES` lists every code.
:func:`experimental` marks functions that may still change.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

UNCLASSIFIED = "unclassified"

WARNING_CODES: Mapping[str, str] = {
    # predictions of runs
    "outside-measured-range": "A number lies outside the range that was measured; the prediction is extrapolated.",
    "unmeasured-value": "A text parameter has a value that no run had.",
    "never-varied": "A number was the same in every run, so the effect of another value is unknown.",
    "few-runs": "The application has few runs of its own; the rest is transferred from a similar one.",
    "other-machine": "No run was made on that CPU.",
    "other-architecture": "The nodes have another CPU architecture than the runs.",
    "always-failed": "Every stored run with these parameters failed.",
    "program-changed": "The program has changed since the stored runs were made.",
    "newer-runs": "Runs or jobs were stored after the model was built.",
    "runs-set-aside": "The model was built from runs that were set aside since.",
    # models
    "column-not-used": "A column of the runs is not used for fitting.",
    "sampled-runs": "The model was fitted to a sample of the runs.",
    "built-from-history": "The model was fitted to jobs of the cluster's history.",
    "proportion-not-used": "The app file's 'per' is not used, because some runs have no value for it.",
    "transferred": "The model is transferred from another application.",
    "not-transferred": "Another application was tried as a source of transfer and not used.",
    # training steps and distributed training
    "limited-model": "The device's model has a known limitation.",
    "other-profile": "A profile has other operators than the model that is predicted.",
    "device-not-measured": "No training was measured on that device.",
    "evidence-figures": "Some or all kernels are predicted from the public figures of the device alone.",
    "no-cache": "The model generates text without a cache of keys and values.",
    "script-wrote-files": "The recorded script created or changed files before its first step ended.",
    "script-incomplete-step": "The recorded step may lack the update of another optimizer.",
    "assumed-values": "The code reads values that are unknown without running it; examples were assumed.",
    "own-step": "The model has a training step and an optimizer of its own, which were used.",
    "unknown-costs": "The cost of some operators is not known.",
    "memory-not-seen": "Operators of an extension may allocate memory that is not seen.",
    "memory-note": "What was assumed or added for the memory of a step.",
    "operators-not-measured": "The times of operators on that device are estimated from its public figures.",
    "strategy-not-measured": "No training with that strategy was measured.",
    "link-not-measured": "No training with such a link was measured.",
    "link-not-named": "No link rate was given.",
    "no-communication": "A single worker does not communicate.",
    "cluster-not-measured": "No step on that cluster was measured.",
    "workload-not-measured": "The workload was measured on other clusters only.",
    "nodes-not-measured": "No step on several nodes of that cluster was measured.",
    "figures-not-used": "Device or link figures have no effect, because no measured step has them.",
    # training jobs
    "batch-grows": "The batch of a step grows with the number of GPUs.",
    "loading-unknown": "The time in which the data are loaded is not known.",
    "interconnect-unknown": "The site file lacks the rate of a network or of the links between GPUs.",
    "run-failed": "A run that was made for the answer failed.",
    "cpu-scaled": "The time on a CPU is scaled from that of one core.",
    "other-currency": "The costs of sites are in different currencies.",
    "command-unknown": "It is not known which command trains a model; its job runs the model's file.",
    "accounting-unavailable": "The usage of advised jobs could not be read from the accounting.",
    "job-not-used": "A job that was advised says nothing of the next one.",
    # observed jobs and benchmarks of a machine
    "busy-machine": "Other processes used the CPU during the measurement.",
    "cycle-of-others": "The compute cycle may be that of other processes.",
    "periods-differ": "Resources have cycles of different periods.",
    "few-samples": "A cycle has few samples.",
    "coarse-cpu-time": "CPU time of processes that ended is known in coarse steps only.",
    "coarse-gpu-time": "The GPU driver updates its counters less often than samples were taken.",
    "late-samples": "Samples were taken late.",
    "truncated": "Only the first part of the job was recorded.",
    "network-unknown": "Network traffic of the processes could not be read.",
    "network-loopback": "Nearly all traffic went through the loopback interface.",
    "network-shared": "Network traffic may include that of other processes.",
    "gpu-unknown": "GPUs were used, but their utilisation could not be read.",
    "no-gpu": "No GPU was used.",
    "few-repeats": "The benchmark was repeated too few times.",
    "unsteady-repeats": "Repeats of the benchmark differ much.",
    # records of earlier versions
    UNCLASSIFIED: "Stored by a version of Foretell whose warnings had no codes.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionWarning:
    """What a result leaves open: ``code`` is stable, ``text`` a sentence, ``data`` its values, as JSON has them."""

    code: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.text


def build_warning(code: str, text: str, /, **data: Any) -> PredictionWarning:
    """A warning with one of the codes of :data:`WARNING_CODES`."""
    assert code in WARNING_CODES, code
    return PredictionWarning(code=code, text=text, data=data)


def upgrade_warnings(record: Mapping[str, Any]) -> list[Any]:
    """The warnings of a stored record; earlier versions kept plain sentences as ``doubts`` or ``notes``."""
    kept = [item for name in ("warnings", "doubts", "notes") for item in record.get(name) or ()]
    return [{"code": UNCLASSIFIED, "text": item} if isinstance(item, str) else item for item in kept]


class ExperimentalWarning(FutureWarning):
    """A function may still change, in its arguments or in its result, with the next version."""


def experimental(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which warns when it is called that it may still change."""

    @functools.wraps(function)
    def warn(*args: P.args, **kwargs: P.kwargs) -> R:
        text = f"foretell.{function.__name__} may still change with the next version"
        warnings.warn(text, ExperimentalWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warn
