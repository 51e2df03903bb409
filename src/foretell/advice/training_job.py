"""The time of a training job: its start, its steps and the loading of their data, evaluation and checkpoints."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.core.prediction import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """How long a job takes and with what: ``phases`` are start-up, steps, evaluation and checkpoints."""

    total: Estimate
    phases: Mapping[str, Estimate]
    steps: int
    epoch: Estimate | None  # with its evaluation; None where the number of samples is unknown
    waits_for_data: bool = False  # whether a batch takes longer to load than to compute


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What a training job does. Its numbers are those of the training, whatever it runs on.

    ``batch`` are the examples of a step as it was recorded, on one GPU. Where it ``grows``, each GPU keeps them: a step
    of several GPUs has more examples, and an epoch fewer steps. Otherwise they are divided among the GPUs.
    """

    name: str
    batch: int
    grows: bool = False
    samples: int | None = None  # of an epoch
    epochs: float | None = None
    steps: int | None = None  # of the whole training; None if its epochs are given
    startup: Estimate
    evaluation_share: float = 0.0  # of the time of an epoch's steps
    evaluation_s: float = 0.0  # for each epoch
    checkpoints: int = 0
    checkpoint_s: float = 0.0
    load: Estimate | None = None  # seconds in which the loaders of one process make a batch; None if they are not known
    workers: int = 0  # processes that load data, for each GPU
    host: Estimate  # bytes of the host that each process needs, with its loaders
    command: tuple[str, ...] = ()  # that the job runs
    batches_per_step: int = field(default=1)  # that one process loads, where its step accumulates several

    def count_batch(self, gpus: int) -> int:
        """The examples of a step on so many GPUs."""
        return self.batch * gpus if self.grows else self.batch

    def count_steps(self, gpus: int) -> int:
        """The steps of the whole training; an epoch's last step may have fewer examples."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        assert self.samples is not None
        return max(1, math.ceil(self.epochs * math.ceil(self.samples / self.count_batch(gpus)) - 1e-9))

    def count_epochs(self, gpus: int) -> float | None:
        """The epochs of the training, also where its steps are given."""
        if self.epochs is not None or self.samples is None:
            return self.epochs
        return self.count_steps(gpus) * self.count_batch(gpus) / self.samples

    def predict(self, step: Estimate, *, gpus: int, copies: int = 1, workers: int | None = None) -> JobTime:
        """The time of the job from that of a step, which ``copies`` of the model share.

        ``workers`` are those that have a core, for each GPU. Bounds add up: what makes one step slower than expected
        makes all of them slower.
        """
        load = self._find_load(gpus, copies, self.workers if workers is None else workers)
        whole = _combine(step, load, serial=self.workers == 0)
        steps, epochs = self.count_steps(gpus), self.count_epochs(gpus)
        phases = {"start-up": self.startup, "steps": _scale(whole, steps)}
        evaluation = self._find_evaluation(phases["steps"], epochs or 0.0)
        phases |= {"evaluation": evaluation} if evaluation.value else {}
        saved = self.checkpoints * self.checkpoint_s
        phases |= {"checkpoints": _widen(saved, _WRITING, level=step.level)} if saved else {}
        epoch = _scale(_add(phases["steps"], evaluation), 1 / epochs) if epochs else None
        waits = load is not None and load.value > step.value
        return JobTime(total=_add(*phases.values()), phases=phases, steps=steps, epoch=epoch, waits_for_data=waits)

    def buy_epochs(self, time: JobTime, seconds: float) -> float:
        """The epochs that a job can end in so many seconds, by the upper bounds of its parts."""
        if time.epoch is None:
            return 0.0
        fixed = sum(time.phases[name].high for name in ("start-up", "checkpoints") if name in time.phases)
        return max(0.0, (seconds - fixed) / time.epoch.high)

    def _find_load(self, gpus: int, copies: int, workers: int) -> Estimate | None:
        """The time in which one process loads its part of a step; fewer workers than were measured take longer."""
        if self.load is None:
            return None
        part = self.count_batch(gpus) / copies / (self.batch / self.batches_per_step)
        return _scale(self.load, part * max(1.0, self.workers / max(1, workers)))

    def _find_evaluation(self, steps: Estimate, epochs: float) -> Estimate:
        shared = _scale(steps, self.evaluation_share)
        return _add(shared, _fix(self.evaluation_s * epochs, level=steps.level))


_WRITING = 2.0  # file systems are slower or faster than expected by this factor


def _combine(step: Estimate, load: Estimate | None, *, serial: bool) -> Estimate:
    """A step with its data: loaded meanwhile by other processes, or before it by its own."""
    if load is None:
        return step
    join = float.__add__ if serial else max
    return Estimate(
        value=join(step.value, load.value),
        low=join(step.low, load.low),
        high=join(step.high, load.high),
        level=step.level,
    )


def _scale(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(
        value=factor * estimate.value, low=factor * estimate.low, high=factor * estimate.high, level=estimate.level
    )


def _add(*estimates: Estimate) -> Estimate:
    return Estimate(
        value=sum(each.value for each in estimates),
        low=sum(each.low for each in estimates),
        high=sum(each.high for each in estimates),
        level=estimates[0].level,
    )


def _fix(seconds: float, *, level: float) -> Estimate:
    return Estimate(value=seconds, low=seconds, high=seconds, level=level)


def _widen(seconds: float, factor: float, *, level: float) -> Estimate:
    return Estimate(value=seconds, low=seconds / factor, high=seconds * factor, level=level)
