"""Measured runs of a training in the store: those that advice led to, profiles, observed jobs and runs of an app."""

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_recording import CPU, OTHER, START_UP, STEP
from foretell.advice.evidence_steps import RUN_NOISE, StepEvidence
from foretell.core.app import Value
from foretell.core.devices import find_device
from foretell.core.errors import NotFoundError
from foretell.core.run import Run, State
from foretell.measure.other_load import OtherLoad
from foretell.stores import RunReader
from foretell.stores.opening import StoreLike, reading_store

PROFILED, OBSERVED = "workload", "observe"  # the apps of measured steps and of observed jobs
_PERIOD_NOISE = 0.1  # of an iteration that was found in the resources of a job
_CLOCK_S = 0.5  # accounting counts whole seconds
_BATCH = re.compile(r"(?:^|(?<=[\s=]))\d+(?=[,:\s]|$)")  # the first dimension of each input


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSetting:
    """How a model is built and what it gets, as profiles have it; their batches may differ."""

    arguments: str
    inputs: str

    def is_same(self, own: Mapping[str, Value]) -> bool:
        """Whether that of a profile is the same."""
        shapes = (_BATCH.sub("", text) for text in (str(own.get("inputs", "")), self.inputs))
        return own.get("arguments", "") == self.arguments and len(set(shapes)) == 1


def find_evidence(
    identity: TrainingIdentity,
    *,
    command: Sequence[str] = (),
    count_steps: Callable[[float, int], int | None] = lambda _epochs, _batch: None,
    profiled: ProfileSetting | None = None,
    store: StoreLike | RunReader = None,
) -> tuple[StepEvidence, ...]:
    """Completed runs of this training. ``count_steps`` gives the steps of so many epochs with a batch.

    ``profiled`` is how the model was built, where it was profiled.

    Raises:
        StoreError: The store cannot be read.
    """
    with reading_store(store, or_empty=True) as opened:
        names = set(opened.app_names())
        found = [
            *(
                _read_advised(run)
                for run in _list(opened, identity.app, names)
                if identity.is_same(run.spec.parameters)
            ),
            *(_read_profile(run) for run in _list(opened, PROFILED, names) if _is_profile(run, identity, profiled)),
            *(_read_observed(run) for run in _list(opened, OBSERVED, names) if _is_observed(run, command)),
            *_read_apps(opened, names - {identity.app, PROFILED, OBSERVED}, command, count_steps),
        ]
    return tuple(each for each in found if each is not None)


def _list(store: RunReader, app: str, names: set[str]) -> list[Run]:
    return store.runs(app, states=(State.COMPLETED,)) if app in names else []


def _read_advised(run: Run) -> StepEvidence | None:
    parameters, usage = run.spec.parameters, run.usage
    step_s, steps = run.phases.get(STEP), _read_count(parameters.get("steps"))
    if usage is None or (step_s is None and steps is None):
        return None
    gpus = _read_count(parameters.get("gpus"))
    trained_s = usage.elapsed_s - run.phases.get(OTHER, 0.0)
    if step_s is None and trained_s <= usage.elapsed_s / 2:  # most of it says nothing of steps
        return None
    return StepEvidence(
        noise=math.hypot(_find_noise(run, gpus), 0.0 if step_s else _find_job_noise(usage.elapsed_s, trained_s)),
        device=str(parameters.get("device", CPU)),
        gpus=gpus or 1,
        layout=str(parameters.get("layout", "")),
        batch=_read_count(parameters.get("batch")),
        cores=None if gpus else run.spec.allocation.cores,
        step_s=step_s,
        elapsed_s=None if step_s is not None else trained_s,
        steps=None if step_s is not None else steps,
        start_up_s=run.phases.get(START_UP) if step_s is not None else None,
        source=f"job {run.job_id}" if run.job_id else _name(run),
    )


def _find_job_noise(elapsed_s: float, trained_s: float) -> float:
    """Of a whole job: that of its clock, and of what was subtracted, which is only predicted."""
    return math.hypot(_CLOCK_S, (elapsed_s - trained_s) / 2) / trained_s


def _find_noise(run: Run, gpus: int | None) -> float:
    """More where other processes used the cores of the run."""
    load, cores = run.machine.load, run.machine.cores
    if gpus or load is None or cores is None:
        return RUN_NOISE
    threads = max(1, run.spec.allocation.cores)
    return math.hypot(RUN_NOISE, math.log1p(OtherLoad(busy_cores=load, cores=cores, threads=threads).too_long))


def _is_profile(run: Run, identity: TrainingIdentity, profiled: ProfileSetting | None) -> bool:
    own = run.spec.parameters
    usual = own.get("mode", "training") == "training"
    alike = profiled is None or profiled.is_same(own)
    return own.get("source") == identity.source and own.get("precision") == identity.precision and usual and alike


def _read_profile(run: Run) -> StepEvidence | None:
    own = run.spec.parameters
    if run.usage is None:
        return None
    return StepEvidence(
        device=_name_place(run, str(own.get("device", CPU))),
        batch=_find_profiled_batch(own),
        cores=None if run.spec.allocation.gpus else run.spec.allocation.cores,
        step_s=run.usage.elapsed_s,
        source=_name(run),
    )


def _find_profiled_batch(own: Mapping[str, Value]) -> int | None:
    """Of the whole step, which may accumulate several."""
    batch, accumulated = _read_count(own.get("batch")), str(own.get("accumulation", "1"))
    return batch * int(accumulated) if batch and accumulated.isdecimal() else batch


def _is_observed(run: Run, command: Sequence[str]) -> bool:
    return bool(command) and run.spec.parameters.get("subject") == shlex.join(command)


def _read_observed(run: Run) -> StepEvidence | None:
    if "period" not in run.phases:
        return None
    allocation = run.spec.allocation
    return StepEvidence(
        device=_name_place(run, (run.machine.gpu_model or CPU) if allocation.gpus else CPU),
        gpus=max(1, allocation.gpus),
        cores=None if allocation.gpus else allocation.cores,
        step_s=run.phases["period"],
        noise=_PERIOD_NOISE,
        source=_name(run),
    )


def _read_apps(
    store: RunReader,
    names: set[str],
    command: Sequence[str],
    count_steps: Callable[[float, int], int | None],
) -> Iterator[StepEvidence | None]:
    """Runs of apps with the same script, whose parameters have epochs or steps, and a batch."""
    scripts = {PurePath(word).name for word in command if word.endswith(".py")}
    for name in sorted(names) if scripts else ():
        try:
            app = store.get_app(name)
        except NotFoundError:  # deleted since
            continue
        if scripts & {PurePath(word).name for word in app.command}:
            runs = store.runs(name, states=(State.COMPLETED,), version=app.version)
            yield from (_read_run(run, count_steps) for run in runs)


def _read_run(run: Run, count_steps: Callable[[float, int], int | None]) -> StepEvidence | None:
    own = {name.lower().replace("-", "_"): value for name, value in run.spec.parameters.items()}
    batch = _read_count(own.get("batch_size", own.get("batch")))
    steps = _read_count(own.get("max_steps", own.get("steps")))
    epochs = own.get("epochs")
    if steps is None and batch and isinstance(epochs, int | float) and not isinstance(epochs, bool):
        steps = count_steps(float(epochs), batch)
    if steps is None or batch is None or run.usage is None:
        return None
    allocation = run.spec.allocation
    gpus = allocation.gpus * allocation.nodes
    return StepEvidence(
        device=_name_place(run, (run.machine.gpu_model or CPU) if gpus else CPU),
        gpus=max(1, gpus),
        batch=batch,
        cores=None if gpus else allocation.cores,
        elapsed_s=run.usage.elapsed_s,
        steps=steps,
        noise=RUN_NOISE,
        source=_name(run),
    )


def _name(run: Run) -> str:
    return f"run {run.id[:8]} of {run.spec.app}"


def _name_place(run: Run, device: str) -> str:
    """As predictions name it: a CPU by its model."""
    return name_device(device) if device != CPU else run.machine.cpu_model or CPU


def name_device(driver_name: str) -> str:
    """The name of a device in the catalogue, or its own."""
    found = find_device(driver_name) if driver_name != CPU else None
    return found.name if found is not None else driver_name


def _read_count(value: Value | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
