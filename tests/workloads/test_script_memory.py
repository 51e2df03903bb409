"""The memory of training scripts, recorded with the operators of their first step."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.workloads import memory_scripts
from tests.workloads.recorded_scripts import Job, find_scripts, run_scripts
from torch import nn

from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.memory.usage import measure_usage
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.scripts.script_facts import ScriptFacts, estimate_host_bytes
from foretell.workloads.step_options import InputSpec, StepOptions

pytest.importorskip("accelerate")
pytest.importorskip("lightning")
pytestmark = pytest.mark.slow

OTHERS = ("amp_scaler", "bert_trainer", "char_gpt", "checkpointing", "gan", "vit")  # of users
WEIGHTS = 4 * (64 * 256 + 256 + 256 * 8 + 8 + 16)
BUFFERS = 4 * 16 + 8


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("scripts")
    scripts = {}
    for name, body in memory_scripts.BODIES.items():
        text = memory_scripts.LOOP.replace("PATH", repr(str(Path(__file__).parent))).replace("BODY", body)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        scripts[name] = str(folder / f"{name}.py")
    return run_scripts("memory", folder, {**scripts, **{name: find_scripts()[name] for name in OTHERS}})


@pytest.fixture(scope="module")
def recorded_without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    return run_scripts("record", tmp_path_factory.mktemp("scripts"), {name: find_scripts()[name] for name in OTHERS})


def load(recorded: dict[str, Job], name: str) -> MemoryTrace:
    trace = recorded[name].load(name).memory
    assert trace is not None
    return trace


def measure_live(trace: MemoryTrace, events: int) -> Counter[MemoryKind]:
    """Bytes of each kind after so many events."""
    found: Counter[MemoryKind] = Counter()
    for event in trace.events[:events]:
        block = abs(event) - 1
        found[MemoryKind(trace.kinds[block])] += int(trace.sizes[block]) * (1 if event > 0 else -1)
    return found


def list_live(trace: MemoryTrace) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Bytes after each event."""
    sizes = trace.sizes[np.abs(trace.events) - 1]
    return np.cumsum(np.where(trace.events > 0, sizes, -sizes))


def find_peak(trace: MemoryTrace) -> int:
    """The most bytes in the second step."""
    return int(list_live(trace)[trace.second :].max())


def find_begin(trace: MemoryTrace, phase: StepPhase) -> int:
    """The first event of a phase of the second step."""
    return next(event for event, found in trace.phases if event >= trace.second and found is phase)


@pytest.mark.parametrize("name", OTHERS)
def test_operators_are_those_without_memory(
    recorded: dict[str, Job], recorded_without: dict[str, Job], name: str
) -> None:
    with_memory, without = recorded[name].load(name), recorded_without[name].load(name)
    assert with_memory.workload == without.workload
    assert with_memory.facts.steps == without.facts.steps
    assert with_memory.memory is not None
    assert without.memory is None


@pytest.mark.parametrize("name", [*memory_scripts.BODIES, *OTHERS])
def test_every_block_has_a_life_in_order(recorded: dict[str, Job], name: str) -> None:
    trace = load(recorded, name)
    assert (list_live(trace) >= 0).all()
    assert trace.events.size == np.unique(trace.events).size
    assert {phase for _, phase in trace.phases} == set(StepPhase)
    assert set(np.abs(trace.events) - 1) == set(range(len(trace.sizes)))


def test_parts_of_a_plain_loop_are_exact(recorded: dict[str, Job]) -> None:
    trace = load(recorded, "plain")
    assert trace.measure(MemoryKind.WEIGHTS) == WEIGHTS
    assert trace.measure(MemoryKind.BUFFERS) == BUFFERS
    assert trace.measure(MemoryKind.OPTIMIZER) == 2 * WEIGHTS
    assert measure_live(trace, find_begin(trace, StepPhase.UPDATE))[MemoryKind.GRADIENTS] == WEIGHTS
    inputs = 32 * 64 * 4 + 32 * 8
    assert measure_live(trace, find_begin(trace, StepPhase.BACKWARD))[MemoryKind.INPUTS] == inputs
    assert not trace.notes


def test_states_are_allocated_once_though_the_update_is_recorded_again(recorded: dict[str, Job]) -> None:
    trace = load(recorded, "plain")
    states = np.flatnonzero(trace.kinds == MemoryKind.OPTIMIZER)
    begun = np.flatnonzero(np.isin(trace.events - 1, states))
    updates = [event for event, phase in trace.phases if phase is StepPhase.UPDATE]
    assert len(updates) == 2
    assert (updates[0] <= begun).all()
    assert (begun < trace.second).all()
    temporary = [sum(trace.events[begin:end] > 0) for begin, end in zip(updates, (trace.second, None), strict=True)]
    assert temporary[0] == len(states) + temporary[1]


def test_average_of_the_weights_counts(recorded: dict[str, Job]) -> None:
    trace = load(recorded, "average")
    assert trace.measure(MemoryKind.WEIGHTS) == 2 * WEIGHTS
    assert trace.measure(MemoryKind.BUFFERS) == 2 * BUFFERS
    assert find_peak(trace) == find_peak(load(recorded, "plain")) + WEIGHTS + BUFFERS


def test_copy_on_the_host_does_not_count(recorded: dict[str, Job]) -> None:
    assert find_peak(load(recorded, "snapshot")) == find_peak(load(recorded, "plain"))


def test_data_counts_as_much_as_is_on_the_gpu(recorded: dict[str, Job]) -> None:
    plain = find_peak(load(recorded, "plain"))
    assert find_peak(load(recorded, "data_on_gpu")) == plain + 1000 * 64 * 4
    assert find_peak(load(recorded, "slices")) == plain


def test_casts_of_autocast(recorded: dict[str, Job]) -> None:
    trace = load(recorded, "mixed")
    casts = 2 * (64 * 256 + 256 + 256 * 8 + 8)
    assert measure_live(trace, find_begin(trace, StepPhase.BACKWARD))[MemoryKind.CASTS] >= casts - 2 * 264
    assert trace.measure(MemoryKind.CASTS) == 2 * casts  # in two steps
    assert trace.settings["precision"] == "bf16"


def test_accumulated_batches_share_their_memory(recorded: dict[str, Job]) -> None:
    trace = load(recorded, "accumulation")
    later = [phase for event, phase in trace.phases if event >= trace.second]
    assert later.count(StepPhase.BACKWARD) == 4
    assert measure_live(trace, len(trace.events))[MemoryKind.GRADIENTS] == WEIGHTS
    assert find_peak(trace) < find_peak(load(recorded, "plain")) + 2 * WEIGHTS


def test_gradients_that_are_freed_late_add_to_the_activations(recorded: dict[str, Job]) -> None:
    late, early = (load(recorded, name) for name in ("late_zero", "early_zero"))
    gradients = late.measure(MemoryKind.WEIGHTS)
    assert 0.7 * gradients < find_peak(late) - find_peak(early) <= gradients


def test_script_that_ends_after_one_step(recorded: dict[str, Job]) -> None:
    trace = load(recorded, "one_step")
    assert trace.second == len(trace.events)
    assert any("one step" in note for note in trace.notes)
    usage = measure_usage(trace)
    assert usage.allocated_bytes >= list_live(trace).max()
    assert len(usage.allocated_curve) == len(trace.events)
    assert trace.measure(MemoryKind.OPTIMIZER) == 2 * WEIGHTS


def test_buckets_of_distributed_data_parallel(recorded: dict[str, Job]) -> None:
    plain, view = load(recorded, "distributed"), load(recorded, "distributed_view")
    assert plain.measure(MemoryKind.COMMUNICATION) == WEIGHTS
    before, before_view = (measure_live(each, find_begin(each, StepPhase.UPDATE)) for each in (plain, view))
    assert before[MemoryKind.GRADIENTS] == before_view[MemoryKind.GRADIENTS] == WEIGHTS
    assert before.total() == before_view.total() + WEIGHTS
    assert find_peak(view) < find_peak(plain)


@pytest.mark.parametrize(
    ("name", "model", "given", "options"),
    [
        (
            "attention",
            memory_scripts.build_attention(),
            InputSpec(shape=(4, 32, 64)),
            StepOptions(optimizer="adamw", loss="sum"),
        ),
        (
            "convolutions",
            memory_scripts.build_convolutions(),
            InputSpec(shape=(8, 3, 32, 32)),
            StepOptions(optimizer="sgd", loss="sum"),
        ),
    ],
)
def test_peak_is_that_of_the_models_code(
    recorded: dict[str, Job], name: str, model: nn.Module, given: InputSpec, options: StepOptions
) -> None:
    captured = capture_memory(model, [given], options=options)
    initial = [number for number in range(len(captured.sizes)) if number + 1 not in captured.events]
    begin = int(captured.sizes[initial].sum())
    assert find_peak(load(recorded, name)) == pytest.approx(begin + find_peak(captured), rel=0.01)


def test_memory_of_a_trainer(recorded: dict[str, Job]) -> None:
    script = recorded["bert_trainer"].load("bert_trainer")
    trace = load(recorded, "bert_trainer")
    size = 4 * script.workload.parameters
    live = measure_live(trace, trace.second)
    assert live[MemoryKind.WEIGHTS] == size
    assert live[MemoryKind.OPTIMIZER] == pytest.approx(2 * size, rel=0.001)
    assert any(layer.startswith("bert.encoder.layer.0") for _, layer in trace.owner_names)


def test_facts_about_the_host(recorded: dict[str, Job]) -> None:
    facts = recorded["workers"].load("workers").facts
    assert (facts.workers, facts.prefetch, facts.pin_memory) == (2, 3, True)
    assert facts.batch_bytes == 32 * 64 * 4 + 32 * 8
    assert facts.moved_bytes == WEIGHTS
    assert facts.process_bytes is not None
    assert 50e6 < facts.process_bytes < 2e9  # PyTorch and little else
    assert facts.worker_bytes is not None
    assert 0 < facts.worker_bytes < facts.process_bytes
    estimate = estimate_host_bytes(facts)
    assert estimate == facts.process_bytes + 2 * facts.worker_bytes + (2 * 4 + 1) * facts.batch_bytes


def test_host_memory_without_workers() -> None:
    facts = ScriptFacts(workers=0, process_bytes=1000, batch_bytes=10)
    assert estimate_host_bytes(facts) == 1020
    assert estimate_host_bytes(replace(facts, moved_bytes=500)) == 1500  # of the weights, before there is data
    assert estimate_host_bytes(replace(facts, moved_bytes=5)) == 1020
    assert estimate_host_bytes(ScriptFacts(workers=4, batch_bytes=10)) is None
