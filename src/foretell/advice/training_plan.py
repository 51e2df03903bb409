"""The length of a training: what its user says, and what its script shows."""

from collections.abc import Iterator
from dataclasses import dataclass

from foretell.advice.training_job import TrainingJob
from foretell.core.errors import Mistake, SpecError
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.prediction import Estimate
from foretell.core.render.phrases import count
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Workload
from foretell.workloads.scripts.script_facts import ScriptFacts, estimate_host_bytes

STARTUP_S = (15.0, 45.0, 180.0)  # imports, the process group, CUDA and the first step: least, expected, most
WORKERS = 4  # processes that load data for each GPU, where nothing says how many
WRITE_BYTES = 1e9  # a second, of checkpoints
_LOADING = (0.6, 1.6)  # what loading takes elsewhere, of what it took here
_FORWARD = 1 / 3  # of a step, as the backward phase has twice its operations
_STATES = 3  # copies of the weights in a checkpoint, with the states of Adam
_GIB = 2**30
# Bytes of the host for a process: Python with PyTorch and the libraries of CUDA; and for each of its loaders.
_PROCESS = (2 * _GIB, 4 * _GIB, 7 * _GIB)
_LOADER = (_GIB // 4, _GIB // 2, _GIB)
_CUDA = (1 * _GIB, 2 * _GIB, 4 * _GIB)  # that a script needs in addition on a machine with a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What a user says of a training; ``None`` where the script may show it, or a usual value is taken.

    ``evaluation_share`` is of the time of an epoch's steps. ``load_s`` is the time in which the loaders of one process
    make a batch. ``batch_per_gpu`` keeps the batch of each GPU, so that a step of several GPUs has more examples;
    without it, the batch of a model is divided among GPUs, and that of a script is not.
    """

    epochs: float | None = None
    steps: int | None = None
    samples: int | None = None
    startup_s: float | None = None
    evaluation_share: float | None = None
    evaluation_s: float | None = None
    checkpoints: int | None = None
    checkpoint_s: float | None = None
    load_s: float | None = None
    workers: int | None = None
    batch_per_gpu: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTraining:
    """A training step as it was read, and what is known of the training around it."""

    workload: Workload
    memory: MemoryTrace | None = None
    facts: ScriptFacts | None = None  # of a script
    command: tuple[str, ...] = ()
    accumulation: int = 1  # batches of a step
    warnings: tuple[PredictionWarning, ...] = ()

    @property
    def in_step(self) -> int:
        """The batches in the recorded step: a script's has all that it accumulates, a model's is that of one."""
        return self.accumulation if self.facts is not None else 1


def build_job(plan: TrainingPlan, recorded: RecordedTraining, *, level: float) -> TrainingJob:
    """The job of a training.

    Raises:
        SpecError: It is not known how long the training is, or two numbers contradict each other.
    """
    facts = recorded.facts or ScriptFacts()
    batch = recorded.workload.batch * recorded.accumulation
    samples = _find_samples(plan, facts, recorded.workload.batch)
    epochs, steps = _choose_length(plan, facts)
    mistakes = list(find_length_mistakes(plan, facts))
    if mistakes:
        raise SpecError(recorded.workload.name, mistakes)
    workers = plan.workers if plan.workers is not None else facts.workers
    startup = (plan.startup_s,) * 3 if plan.startup_s is not None else STARTUP_S
    return TrainingJob(
        name=recorded.workload.name,
        batch=batch,
        grows=plan.batch_per_gpu if plan.batch_per_gpu is not None else recorded.facts is not None,
        samples=samples,
        epochs=epochs,
        steps=steps,
        startup=_estimate(startup, level),
        evaluation_share=_find_evaluation_share(plan, facts),
        evaluation_s=plan.evaluation_s or 0.0,
        checkpoints=_count_checkpoints(plan, facts, epochs),
        checkpoint_s=plan.checkpoint_s if plan.checkpoint_s is not None else _find_checkpoint_s(recorded),
        load=_find_load(plan, facts, level),
        workers=WORKERS if workers is None else workers,
        host=_find_host(recorded, WORKERS if workers is None else workers, level),
        command=recorded.command,
        batches_per_step=recorded.accumulation,
    )


def find_plan_warnings(job: TrainingJob, recorded: RecordedTraining, *, most_gpus: int) -> Iterator[PredictionWarning]:
    """What follows from how the training is described, where up to so many GPUs are offered."""
    if recorded.facts is not None and job.grows and most_gpus > 1:
        text = (
            f"The batch of {job.batch} is that of each process, as the script has it: with more GPUs a step has more "
            "examples, and the training's result may differ. --keep-batch divides it among the GPUs instead."
        )
        yield build_warning("batch-grows", text, batch=job.batch)
    if job.steps is not None and job.grows and most_gpus > 1:
        text = f"The {job.steps:,} steps stay as many on several GPUs, where each has more examples."
        yield build_warning("batch-grows", text, steps=job.steps)
    if job.load is None:
        text = "Loading the data is expected to be faster than the steps; --load-per-batch says how long a batch takes."
        yield build_warning("loading-unknown", text)


def _choose_length(plan: TrainingPlan, facts: ScriptFacts) -> tuple[float | None, int | None]:
    """Epochs or steps: what the user says, else what the script shows."""
    if plan.epochs is not None or plan.steps is not None:
        return plan.epochs, plan.steps
    return (None, facts.steps) if facts.steps is not None else (facts.epochs, None)


def _find_samples(plan: TrainingPlan, facts: ScriptFacts, batch: int) -> int | None:
    """The examples of an epoch: what the user says, else what the script shows, at least by its batches."""
    return plan.samples or facts.samples or (facts.batches and facts.batches * batch)


def find_length_mistakes(plan: TrainingPlan, facts: ScriptFacts) -> Iterator[Mistake]:
    """What is missing to know how long a training is, or contradicts itself."""
    epochs, steps = _choose_length(plan, facts)
    samples = _find_samples(plan, facts, 1)
    if plan.epochs is not None and plan.steps is not None:
        found = f"{plan.epochs:g} epochs and {plan.steps:,} steps"
        yield Mistake(place="--epochs, --steps", found=found, expected="one of them")
    if epochs is None and steps is None:
        expected = "how long the training is: --epochs 90, or --steps 450000 of the optimizer"
        yield Mistake(place="--epochs", found=f"none{_describe_shown(facts)}", expected=expected)
    if steps is None and samples is None:
        expected = "the examples of an epoch: --samples 1281167; or --steps instead of epochs"
        yield Mistake(place="--samples", found=f"none{_describe_shown(facts)}", expected=expected)
    if plan.evaluation_s and steps is not None and samples is None:
        found = f"a time for each epoch, and {steps:,} steps"
        expected = "--samples, so that epochs can be counted; or a share such as --evaluation 5%"
        yield Mistake(place="--evaluation", found=found, expected=expected)


def _describe_shown(facts: ScriptFacts) -> str:
    """What a script shows of its length."""
    names = {"epoch": facts.epochs, "sample": facts.samples, "step": facts.steps}
    shown = [count(value, name) for name, value in names.items() if value is not None]
    if facts.batches is not None:
        shown.append(f"{facts.batches:,} {'batch' if facts.batches == 1 else 'batches'}")
    if facts == ScriptFacts():
        return ""
    return f" (the script shows {', '.join(shown)})" if shown else " (the script shows none before its first step ends)"


def _find_load(plan: TrainingPlan, facts: ScriptFacts, level: float) -> Estimate | None:
    if plan.load_s is not None:
        return _estimate((plan.load_s,) * 3, level)
    if not facts.load_s:
        return None
    workers = plan.workers if plan.workers is not None else facts.workers
    low, high = _LOADING
    together = facts.load_s / max(1, workers or 0)  # each of them makes another batch
    return _estimate((low * together, together, high * together), level)


def _find_evaluation_share(plan: TrainingPlan, facts: ScriptFacts) -> float:
    """Of the time of an epoch's steps: the forward phase of the batches that the script evaluates, as it shows them."""
    if plan.evaluation_share is not None or plan.evaluation_s is not None:
        return plan.evaluation_share or 0.0
    if not facts.evaluation_batches or not facts.batches:
        return 0.0
    return _FORWARD * facts.evaluation_batches / facts.batches


def _count_checkpoints(plan: TrainingPlan, facts: ScriptFacts, epochs: float | None) -> int:
    if plan.checkpoints is not None:
        return plan.checkpoints
    return round((facts.saves_per_epoch or 0.0) * (epochs or 0.0))


def _find_checkpoint_s(recorded: RecordedTraining) -> float:
    """The time to write the weights and the states of the optimizer."""
    memory = recorded.memory
    if memory is not None:
        return (memory.measure(MemoryKind.WEIGHTS) + memory.measure(MemoryKind.OPTIMIZER)) / WRITE_BYTES
    return _STATES * sum(gradient.bytes_ for gradient in recorded.workload.gradients) / WRITE_BYTES


def _find_host(recorded: RecordedTraining, workers: int, level: float) -> Estimate:
    """Bytes of the host for one process with its loaders."""
    measured = estimate_host_bytes(recorded.facts) if recorded.facts is not None else None
    if measured is None:
        parts = zip(_PROCESS, _LOADER, strict=True)
        return _estimate(tuple(float(process + workers * loader) for process, loader in parts), level)
    return _estimate(tuple(float(measured + each) for each in _CUDA), level)


def _estimate(values: tuple[float, ...], level: float) -> Estimate:
    low, value, high = values
    return Estimate(value=value, low=low, high=high, level=level)
