"""Runs of a training come back from the store as evidence, and those of others do not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from foretell.advice.evidence_errors import StepPlace
from foretell.advice.evidence_identity import TrainingIdentity, identify
from foretell.advice.evidence_recording import build_advised_app, record_usage
from foretell.advice.evidence_runs import OBSERVED, PROFILED, find_evidence, name_device
from foretell.advice.evidence_steps import StepEvidence
from foretell.core.app import App, Parameter, ParameterType, Value
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.stores import RunStore, open_store

IDENTITY = TrainingIdentity(source="src/train.py", parameters=1000, flops=5e9, precision="bf16")
PLACE = StepPlace(device="A100-80", gpus=4, layout="ddp", batch=32)
COMMAND = ("python", "src/train.py", "--epochs", "2")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with open_store(tmp_path / "runs.db") as opened:
        yield opened


def test_job_comes_back_with_its_place_and_steps(store: RunStore) -> None:
    run = record_usage(IDENTITY, PLACE, steps=500, usage=Usage(elapsed_s=90.0), store=store, job_id="12")
    assert run.spec.app == "advise-train"
    (found,) = find_evidence(IDENTITY, store=store)
    assert found == replace(_expect(), elapsed_s=90.0, steps=500, step_s=None, source="job 12", noise=found.noise)
    assert 0.03 < found.noise < 0.04  # accounting counts whole seconds
    assert store.get_app("advise-train").parameter_names() == build_advised_app(IDENTITY).parameter_names()


def _expect() -> StepEvidence:
    return StepEvidence(device="A100-80", gpus=4, layout="ddp", batch=32, step_s=1.0)


def test_time_of_a_step_is_used_where_it_is_known(store: RunStore) -> None:
    usage = Usage(elapsed_s=90.0)
    record_usage(IDENTITY, PLACE, steps=500, usage=usage, step_s=0.125, start_up_s=20.0, store=store)
    (found,) = find_evidence(IDENTITY, store=store)
    assert (found.step_s, found.elapsed_s, found.steps) == (0.125, None, None)


def test_run_on_a_cpu_comes_back_with_its_cores(store: RunStore) -> None:
    place = StepPlace(device="cpu", batch=8, cores=2)
    record_usage(IDENTITY, place, steps=10, usage=Usage(elapsed_s=9.0), step_s=0.5, store=store)
    (found,) = find_evidence(IDENTITY, store=store)
    assert found.place == place


def test_same_run_twice_is_two_runs(store: RunStore) -> None:
    for _ in range(2):
        record_usage(IDENTITY, PLACE, steps=500, usage=Usage(elapsed_s=90.0), store=store)
    assert len(find_evidence(IDENTITY, store=store)) == 2


@pytest.mark.parametrize(
    "other",
    [
        replace(IDENTITY, parameters=1001),
        replace(IDENTITY, flops=6e9),
        replace(IDENTITY, precision="fp32"),
        replace(IDENTITY, source="other.py"),
    ],
)
def test_other_trainings_are_left_out(store: RunStore, other: TrainingIdentity) -> None:
    record_usage(other, PLACE, steps=500, usage=Usage(elapsed_s=90.0), store=store)
    assert find_evidence(IDENTITY, store=store) == ()


def test_nearly_the_same_flops_are_the_same_network(store: RunStore) -> None:
    """Another batch has a little more or less for each example."""
    record_usage(replace(IDENTITY, flops=5.1e9), PLACE, steps=5, usage=Usage(elapsed_s=9.0), store=store)
    assert len(find_evidence(IDENTITY, store=store)) == 1


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY])
def test_failed_jobs_are_no_evidence(store: RunStore, state: State) -> None:
    record_usage(IDENTITY, PLACE, steps=500, usage=Usage(elapsed_s=90.0), state=state, store=store)
    assert find_evidence(IDENTITY, store=store) == ()


def test_there_may_be_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_evidence(IDENTITY) == ()
    assert not list(tmp_path.iterdir())


def add(store: RunStore, app: App, run: Run) -> None:
    store.save_app(app)
    store.add_runs([run])


def test_profiles_of_the_same_source_are_evidence(store: RunStore) -> None:
    own: dict[str, Value] = {
        "source": "src/train.py",
        "batch": 16,
        "device": "NVIDIA A100-SXM4-80GB",
        "precision": "bf16",
    }
    others: list[dict[str, Value]] = [{}, {"precision": "fp32"}, {"source": "x.py"}, {"mode": "inference"}]
    for number, changed in enumerate(others):
        spec = RunSpec(app=PROFILED, parameters={**own, **changed}, allocation=Allocation(gpus=1), repetition=number)
        add(store, App(name=PROFILED), Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=0.25)))
    (found,) = find_evidence(IDENTITY, store=store)
    assert (found.device, found.batch, found.step_s, found.cores) == ("A100-80", 16, 0.25, None)


def test_period_of_an_observed_job_is_evidence(store: RunStore) -> None:
    for number, (subject, phases) in enumerate(
        [
            ("python src/train.py --epochs 2", {"period": 0.2}),
            ("python src/train.py --epochs 2", {}),
            ("top", {"period": 1.0}),
        ]
    ):
        spec = RunSpec(app=OBSERVED, parameters={"subject": subject}, allocation=Allocation(cores=2), repetition=number)
        run = Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=9.0), phases=phases)
        add(store, App(name=OBSERVED), run)
    (found,) = find_evidence(IDENTITY, command=COMMAND, store=store)
    assert (found.device, found.cores, found.step_s) == ("cpu", 2, 0.2)
    assert found.noise > 0.05


def test_runs_of_an_app_with_the_same_script_are_evidence(store: RunStore) -> None:
    names = ("epochs", "batch_size")
    parameters = tuple(Parameter(name=name, type=ParameterType.INTEGER) for name in names)
    app = App(name="sweep", command=("python", "train.py", "{epochs}", "{batch_size}"), parameters=parameters)
    spec = RunSpec(app="sweep", parameters={"epochs": 3, "batch_size": 8}, allocation=Allocation(gpus=2))
    machine = Machine(gpu_model="Tesla T4", gpus=2)
    add(store, app, Run(spec=spec, state=State.COMPLETED, usage=Usage(elapsed_s=33.0), machine=machine))
    assert find_evidence(IDENTITY, command=COMMAND, store=store) == ()  # it is not known how many steps that were
    (found,) = find_evidence(
        IDENTITY, command=COMMAND, count_steps=lambda epochs, batch: int(epochs) * 80 // batch, store=store
    )
    assert (found.device, found.gpus, found.batch, found.elapsed_s, found.steps) == ("T4", 2, 8, 33.0, 30)
    assert find_evidence(IDENTITY, command=("python", "other.py"), count_steps=lambda *_: 1, store=store) == ()


def test_identity_is_that_of_an_example() -> None:
    operator = Operator(kind="linear", phase=StepPhase.FORWARD, inputs=((4, 2),), output=(4, 3), flops=48.0)
    workload = Workload(name="a/b.py:make", operators=(operator,) * 2, batch=4, parameters=6, settings={})
    found = identify(workload, batches=2)
    assert (found.app, found.parameters, found.flops, found.precision) == ("advise-b-make", 6, 12.0, "fp32")
    assert found.is_same({"network": found.network, "precision": "fp32"})
    assert not found.is_same({"network": "nonsense", "precision": "fp32"})


@pytest.mark.parametrize(("name", "device"), [("cpu", "cpu"), ("Tesla T4", "T4"), ("Own GPU 9", "Own GPU 9")])
def test_devices_have_the_names_of_the_catalogue(name: str, device: str) -> None:
    assert name_device(name) == device
