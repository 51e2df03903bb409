"""Makes a scaled-down run of a training on this machine, stores it, and gives it back as evidence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_recording import CPU, record_usage
from foretell.advice.evidence_runs import name_device
from foretell.advice.evidence_steps import RUN_NOISE, StepEvidence
from foretell.core.run import Run, Usage
from foretell.measure.machine import detect_machine, find_cpu_model
from foretell.measure.other_load import OtherLoad, describe_load
from foretell.stores.opening import StoreLike
from foretell.workloads.scripts.timed_run import TIMEOUT_S, TimedSteps, time_script
from foretell.workloads.step_options import InputSpec, StepOptions

STEPS, SECONDS = 50, 60.0
_SHOWN = 5  # files


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRun:
    """A run that was made here: what it says, the files that the script wrote meanwhile, and the load of others."""

    evidence: StepEvidence
    run: Run
    start_up_s: float | None = None
    written: tuple[str, ...] = ()
    load: OtherLoad | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know of it."""
        busy = [describe_load(self.load)] if self.load is not None and self.load.is_disturbing else []
        wrote = [f"The script wrote {', '.join(self.written[:_SHOWN])}."] if self.written else []
        return (*busy, *wrote)


def make_next_run(
    identity: TrainingIdentity,
    *,
    batch: int,
    command: Sequence[str] = (),
    source: str = "",
    inputs: Sequence[InputSpec | str] = (),
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    device: str | None = None,
    steps: int = STEPS,
    seconds: float = SECONDS,
    timeout_s: float = TIMEOUT_S,
    store: StoreLike = None,
    folder: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> MadeRun:
    """Run the user's command for some steps on this machine, or those of a model without one; and store what it took.

    ``batch`` are the examples of a step. ``device`` is the name that predictions have for this machine; by default
    that of its GPU in the catalogue, or of its CPU.

    Raises:
        NotFoundError, WorkloadError, MissingExtraError: The command or the model cannot be run.
        StoreError: The run cannot be stored.
    """
    if command:
        timed = time_script(command, steps=steps, seconds=seconds, timeout_s=timeout_s, on_progress=on_progress)
        return _keep(identity, timed, batch, device, store)
    return _profile(
        identity, source, inputs, arguments, options, batch=batch, device=device, store=store, folder=folder
    )


def _keep(identity: TrainingIdentity, timed: TimedSteps, batch: int, device: str | None, store: StoreLike) -> MadeRun:
    on_gpu = timed.device != CPU
    computed = timed.compute_s if not on_gpu else timed.step_s  # a GPU computes while its host waits for data
    unsure = math.log(timed.step_s / timed.compute_s) if on_gpu else 0.0
    if timed.load is not None and not on_gpu:
        unsure = math.log1p(timed.load.too_long)
    evidence = StepEvidence(
        device=device or _name_here(timed.device),
        batch=batch,
        cores=None if on_gpu else timed.threads,
        step_s=computed,
        start_up_s=timed.start_up_s,
        noise=math.hypot(RUN_NOISE, unsure),
        source="run here",
    )
    run = record_usage(
        identity,
        evidence.place,
        steps=timed.steps,
        usage=Usage(elapsed_s=timed.start_up_s + timed.seconds),
        step_s=computed,
        start_up_s=timed.start_up_s,
        machine=replace(detect_machine(), load=timed.load.busy_cores if timed.load else None),
        store=store,
    )
    written = (*timed.created, *timed.changed)
    return MadeRun(evidence=evidence, run=run, start_up_s=timed.start_up_s, written=written, load=timed.load)


def _name_here(device: str) -> str:
    """A CPU has the name of its model."""
    return name_device(device) if device != CPU else find_cpu_model() or CPU


def _profile(
    identity: TrainingIdentity,
    source: str,
    inputs: Sequence[InputSpec | str],
    arguments: Mapping[str, object] | None,
    options: StepOptions | None,
    *,
    batch: int,
    device: str | None,
    store: StoreLike,
    folder: Path | None,
) -> MadeRun:
    """A few steps of a model with random data; ``foretell workload profile`` measures and stores them."""
    from foretell.steps.api import KEPT, profile_workload

    kept = profile_workload(
        source, inputs, arguments=arguments, options=options, batch=batch, store=store, folder=folder or KEPT
    )
    step = kept.profile.step
    on_gpu = step.device != CPU
    evidence = StepEvidence(
        device=device or _name_here(step.device),
        batch=batch,
        cores=None if on_gpu else kept.run.spec.allocation.cores,
        step_s=step.iteration_s,
        source="run here",
    )
    return MadeRun(evidence=evidence, run=kept.run)
