"""Measured runs of a training in the store: those that advice led to, profiles, observed jobs and runs of an app.

A run of advice is stored as an app named after the script or the model. It has the network's identity among its
parameters, so that another network of the same script is not taken for it.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from foretell.advice.evidence import RUN_NOISE, StepEvidence
from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_identity import TrainingIdentity
from foretell.apps.api import store_repeated
from foretell.core.app import App, Parameter, ParameterType, Value
from foretell.core.devices import find_device
from foretell.core.errors import NotFoundError
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.measure.other_load import OtherLoad
from foretell.stores import RunReader
from foretell.stores.opening import StoreLike, reading_store, using_store

PROFILED, OBSERVED = "workload", "observe"  # the apps of measured steps and of observed jobs
STEP, START_UP = "step", "start_up"  # phases
CPU = "cpu"
_PERIOD_NOISE = 0.1  # of an iteration that was found in the resources of a job
_TYPES = {
    "network": ParameterType.TEXT,
    "precision": ParameterType.TEXT,
    "device": ParameterType.TEXT,
    "gpus": ParameterType.INTEGER,
    "layout": ParameterType.TEXT,
    "batch": ParameterType.INTEGER,
    "steps": ParameterType.INTEGER,
}


# Into the store


def build_advised_app(identity: TrainingIdentity) -> App:
    """The app of the runs of a training; nothing in the store can start it."""
    return App(name=identity.app, parameters=tuple(Parameter(name=name, type=each) for name, each in _TYPES.items()))


def record_usage(
    identity: TrainingIdentity,
    place: StepPlace,
    *,
    steps: int,
    usage: Usage,
    step_s: float | None = None,
    start_up_s: float | None = None,
    state: State = State.COMPLETED,
    machine: Machine | None = None,
    nodes: int = 1,
    job_id: str = "",
    source: str = "advise",
    store: StoreLike = None,
) -> Run:
    """Store what a training used: a whole job, or one of which the time of a step is known.

    Raises:
        StoreError: The store cannot be written.
    """
    parameters: dict[str, Value] = {
        "network": identity.network,
        "precision": identity.precision,
        "device": place.device,
        "gpus": place.gpus if place.cores is None else 0,
        "layout": place.layout,
        "batch": place.batch or 0,
        "steps": steps,
    }
    phases = {name: value for name, value in ((STEP, step_s), (START_UP, start_up_s)) if value is not None}
    allocation = Allocation(cores=place.cores or 1, gpus=int(str(parameters["gpus"])) // nodes, nodes=nodes)
    run = Run(
        spec=RunSpec(app=identity.app, parameters=parameters, allocation=allocation),
        state=state,
        usage=usage,
        phases=phases,
        machine=machine or Machine(),
        ended_at=datetime.now(UTC),
        source=source,
        job_id=job_id,
    )
    with using_store(store, create=True) as opened:
        return store_repeated(run, _TYPES, opened)


# Out of the store


def find_evidence(
    identity: TrainingIdentity,
    *,
    command: Sequence[str] = (),
    count_steps: Callable[[float, int], int | None] = lambda _epochs, _batch: None,
    store: StoreLike | RunReader = None,
) -> tuple[StepEvidence, ...]:
    """Completed runs of this training. ``count_steps`` gives the steps of so many epochs with a batch.

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
            *(_read_profile(run) for run in _list(opened, PROFILED, names) if _is_profile(run, identity)),
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
    return StepEvidence(
        noise=_find_noise(run, gpus),
        device=str(parameters.get("device", CPU)),
        gpus=gpus or 1,
        layout=str(parameters.get("layout", "")),
        batch=_read_count(parameters.get("batch")),
        cores=None if gpus else run.spec.allocation.cores,
        step_s=step_s,
        elapsed_s=None if step_s is not None else usage.elapsed_s,
        steps=None if step_s is not None else steps,
        source=_name(run),
    )


def _find_noise(run: Run, gpus: int | None) -> float:
    """More where other processes used the cores of the run."""
    load, cores = run.machine.load, run.machine.cores
    if gpus or load is None or cores is None:
        return RUN_NOISE
    threads = max(1, run.spec.allocation.cores)
    return math.hypot(RUN_NOISE, math.log1p(OtherLoad(busy_cores=load, cores=cores, threads=threads).too_long))


def _is_profile(run: Run, identity: TrainingIdentity) -> bool:
    own = run.spec.parameters
    usual = own.get("mode", "training") == "training"
    return own.get("source") == identity.source and own.get("precision") == identity.precision and usual


def _read_profile(run: Run) -> StepEvidence | None:
    own = run.spec.parameters
    if run.usage is None:
        return None
    return StepEvidence(
        device=name_device(str(own.get("device", CPU))),
        batch=_read_count(own.get("batch")),
        cores=None if run.spec.allocation.gpus else run.spec.allocation.cores,
        step_s=run.usage.elapsed_s,
        source=_name(run),
    )


def _is_observed(run: Run, command: Sequence[str]) -> bool:
    return bool(command) and run.spec.parameters.get("subject") == shlex.join(command)


def _read_observed(run: Run) -> StepEvidence | None:
    if "period" not in run.phases:
        return None
    allocation = run.spec.allocation
    return StepEvidence(
        device=name_device(run.machine.gpu_model or CPU) if allocation.gpus else CPU,
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
        device=name_device(run.machine.gpu_model or CPU) if gpus else CPU,
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


def name_device(driver_name: str) -> str:
    """The name of a device in the catalogue, or its own."""
    found = find_device(driver_name) if driver_name != CPU else None
    return found.name if found is not None else driver_name


def _read_count(value: Value | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
