"""Makes scaled-down runs of a training on this machine: of its script, or of its model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from foretell.advice.evidence_identity import TrainingIdentity
from foretell.advice.evidence_local_run import STEPS, MadeRun, make_next_run
from foretell.advice.evidence_next_run import NextRun
from foretell.advice.evidence_runs import ProfileSetting
from foretell.advice.training_job import TrainingJob
from foretell.core.workload import Workload
from foretell.stores.opening import StoreLike
from foretell.workloads.api import read_workload
from foretell.workloads.step_options import InputSpec, StepOptions


class ScriptRuns:
    """Runs of a command."""

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        timeout_s: float,
        store: StoreLike,
        on_progress: Callable[[str], None],
    ) -> None:
        self._command, self._timeout_s, self._store, self._on_progress = command, timeout_s, store, on_progress

    def make(self, identity: TrainingIdentity, job: TrainingJob, suggested: NextRun | None) -> MadeRun:
        """As many steps as were suggested for this machine, or as usual.

        Raises:
            NotFoundError, WorkloadError, MissingExtraError, StoreError: As :func:`make_next_run`.
        """
        steps = suggested.steps if suggested is not None and suggested.candidate.here else STEPS
        return make_next_run(
            identity,
            batch=job.count_batch(1),
            command=self._command,
            steps=steps,
            timeout_s=self._timeout_s,
            store=self._store,
            on_progress=self._on_progress,
        )


class ModelRuns:
    """Steps of a model with random data; with another batch, as runs had it, they are only read."""

    def __init__(
        self,
        source: str,
        inputs: Sequence[InputSpec],
        arguments: Mapping[str, object],
        options: StepOptions,
        *,
        store: StoreLike,
        folder: Path,
    ) -> None:
        self._source, self._inputs, self._arguments, self._options = source, inputs, arguments, options
        self._store, self._folder = store, folder
        self.read = cache(self._read)

    @property
    def setting(self) -> ProfileSetting:
        """By which profiles of the model are known."""
        arguments = " ".join(f"{name}={value}" for name, value in self._arguments.items())
        return ProfileSetting(arguments=arguments, inputs=" ".join(map(str, self._inputs)))

    def _read(self, batch: int) -> Workload | None:
        """The step of so many examples, if its accumulated batches divide them."""
        each, left = divmod(batch, self._options.accumulation)
        if left or not each:
            return None
        return read_workload(self._source, self._inputs, arguments=self._arguments, options=self._options, batch=each)

    def make(self, identity: TrainingIdentity, job: TrainingJob, _suggested: NextRun | None) -> MadeRun:
        """A few steps.

        Raises:
            NotFoundError, WorkloadError, MissingExtraError, StoreError: As :func:`make_next_run`.
        """
        batch = job.count_batch(1)
        made = make_next_run(
            identity,
            batch=max(1, batch // self._options.accumulation),
            source=self._source,
            inputs=self._inputs,
            arguments=self._arguments,
            options=self._options,
            store=self._store,
            folder=self._folder,
        )
        return replace(made, evidence=replace(made.evidence, batch=batch))
