"""The memory of a model's step with any batch and length: read from its code a few times, derived in between."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.core.devices import Device
from foretell.core.layouts import Layout
from foretell.core.memory import MemoryTrace
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.batch_sizes import BatchTraces, NotAffineError
from foretell.memory.layout_shards import adapt_options, apply_layout
from foretell.memory.length_sizes import LengthTraces, extrapolate
from foretell.memory.measured_peaks import MeasuredPeaks, PeakRatios, compare_peaks
from foretell.memory.usage import STEPS, MemoryUsage, measure_usage
from foretell.steps.prediction_api import predict_workload
from foretell.workloads.api import read_memory
from foretell.workloads.step_options import InputSpec, StepOptions


class ModelMemory:
    """The memory of a step of one model with one set of options, on one GPU or shared by several."""

    def __init__(
        self,
        source: str,
        inputs: Sequence[InputSpec],
        *,
        arguments: Mapping[str, object],
        options: StepOptions,
        batch: int | None,
        settings: AllocatorSettings,
        layout: Layout | None = None,
        measured: MeasuredPeaks | None = None,
    ) -> None:
        self._source, self._inputs, self._arguments = source, inputs, arguments
        self._settings = settings
        self.layout = layout or Layout()
        self._batch = batch
        self._measured = measured
        self._ratios = PeakRatios()
        self._traces: dict[tuple[int | None, int | None], MemoryTrace] = {}
        self._usages: dict[MemoryTrace, MemoryUsage] = {}  # of steps that were read
        self._of_batches: dict[int, MemoryUsage] = {}
        self._of_lengths: dict[int, MemoryUsage] = {}
        self.options = options

    @property
    def captures(self) -> int:
        """How often the code was read."""
        return len(self._traces)

    def predict_time(self, device: Device, batch: int) -> float:
        """Seconds of a step on a device with this batch, for each example of an update."""
        found = predict_workload(
            self._source,
            self._inputs,
            device=device,
            batches=[batch],
            arguments=self._arguments,
            options=self.options,
        )
        return found[0].estimate.iteration.value / (batch * self.options.accumulation)

    def with_settings(self, settings: AllocatorSettings) -> "ModelMemory":
        """The same model with another allocator."""
        found = self.with_options()
        found._traces, found._settings = self._traces, settings
        return found

    def with_layout(self, layout: Layout) -> "ModelMemory":
        """The same model on other GPUs."""
        found = self.with_options()
        found.layout = layout
        if adapt_options(self.options, layout) == adapt_options(self.options, self.layout):
            found._traces = self._traces
        return found

    def with_options(self, **options: object) -> "ModelMemory":
        """The same model with other options."""
        found = ModelMemory(
            self._source,
            self._inputs,
            arguments=self._arguments,
            options=replace(self.options, **options),  # type: ignore[arg-type]
            batch=self._batch,
            settings=self._settings,
            layout=self.layout,
            measured=self._measured,
        )
        found._ratios = self._ratios
        return found

    def correct(self) -> None:
        """Compare with the peaks that were measured, and correct all further ones by them."""
        if self._measured is not None:
            predicted = self.measure_batch(self._measured.batch)
            self._usages.clear()
            self._of_batches.clear()
            self._ratios = compare_peaks(self._measured, predicted)

    def read(self, batch: int | None = None, length: int | None = None) -> MemoryTrace:
        """The step from the code, with this batch and length."""
        key = batch if batch is not None else self._batch, length
        if key not in self._traces:
            self._traces[key] = read_memory(
                self._source,
                self._inputs,
                arguments=self._arguments,
                options=adapt_options(self.options, self.layout),
                batch=key[0],
                length=length,
            )
        return self._traces[key]

    def measure(self, trace: MemoryTrace | None = None) -> MemoryUsage:
        """What a step uses; by default the one that was asked for."""
        trace = trace if trace is not None else self.read()
        known = self._usages.get(trace)
        if known is not None:
            return known
        steps = 2 if self.options.mode == "generate" else STEPS
        usage = measure_usage(apply_layout(trace, self.layout), settings=self._settings, steps=steps)
        usage = self._ratios.correct(usage)
        if trace in self._traces.values():
            self._usages[trace] = usage
        return usage

    def measure_batch(self, batch: int) -> MemoryUsage:
        """What a step with this batch uses, derived from two that were read."""
        first = self.read()
        if batch == first.batch:
            return self.measure()
        if batch not in self._of_batches:
            other = self.read(batch=2 * first.batch if first.batch < 4 else first.batch // 2)  # 1 is often special
            try:
                usage = self.measure(BatchTraces(first, other).resize(batch))
            except NotAffineError:
                usage = extrapolate(batch, {each.batch: self.measure(each) for each in (first, other)})
            self._of_batches[batch] = usage
        return self._of_batches[batch]

    def measure_length(self, length: int) -> MemoryUsage:
        """What a step with sequences of this length uses, derived from three that were read.

        Raises:
            SpecError: The model has no input of tokens.
        """
        first = self.read()
        if length == first.length:
            return self.measure()
        if length not in self._of_lengths:
            tokens = first.length or 64
            shorter = [
                self.read(length=each) for each in sorted({max(8, tokens // 4), max(12, tokens // 2)} - {tokens})
            ]
            try:
                usage = self.measure(LengthTraces([first, *shorter]).resize(length))
            except NotAffineError:
                usage = extrapolate(length, {each.length or 0: self.measure(each) for each in (first, *shorter)})
            self._of_lengths[length] = usage
        return self._of_lengths[length]
