"""Stores what a training used, as a run of an app named after the script or the model.

It has the network's identity among its parameters, so that another network of the same script is not taken for it.
"""

from datetime import UTC, datetime

from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_identity import TrainingIdentity
from foretell.apps.api import store_repeated
from foretell.core.app import App, Parameter, ParameterType, Value
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.stores.opening import StoreLike, using_store

CPU = "cpu"
STEP, START_UP, OTHER = "step", "start_up", "other"  # phases; the last has what is neither of the others
_TYPES = {
    "network": ParameterType.TEXT,
    "precision": ParameterType.TEXT,
    "device": ParameterType.TEXT,
    "gpus": ParameterType.INTEGER,
    "layout": ParameterType.TEXT,
    "batch": ParameterType.INTEGER,
    "steps": ParameterType.INTEGER,
}


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
    other_s: float | None = None,
    state: State = State.COMPLETED,
    machine: Machine | None = None,
    nodes: int = 1,
    job_id: str = "",
    source: str = "advise",
    store: StoreLike = None,
) -> Run:
    """Store what a training used: a whole job, or one of which the time of a step is known.

    ``other_s`` of a job are expected for what is no step: evaluation, checkpoints, waiting for data.

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
    phases = {name: value for name, value in _name_phases(step_s, start_up_s, other_s) if value is not None}
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


def _name_phases(
    step_s: float | None, start_up_s: float | None, other_s: float | None
) -> tuple[tuple[str, float | None], ...]:
    return (STEP, step_s), (START_UP, start_up_s), (OTHER, other_s or None)
