"""Changes of a training step that need less memory, with what each frees and what time it costs."""

from collections.abc import Iterator
from contextlib import suppress

from foretell.core.devices import Device, list_precisions
from foretell.core.errors import ForetellError
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.fitting import find_largest
from foretell.memory.forecast import MemoryForecast, forecast
from foretell.memory.memory_results import Remedy
from foretell.memory.model_memory import ModelMemory
from foretell.memory.usage import MemoryUsage

_LEAST_FREED = 0.01  # of the need, below which a change is not worth to be named
EXPANDABLE = "expandable_segments:True"


def find_remedies(model: ModelMemory, device: Device, *, risk: float, level: float) -> tuple[Remedy, ...]:
    """The changes that free memory on a device: those that make the step fit first, the fastest of them first."""
    judge = _Judge(model, device, risk=risk, level=level)
    found = [each for each in judge.list_remedies() if each.freed_bytes > _LEAST_FREED * judge.before.needed.value]
    return tuple(sorted(found, key=lambda each: (not each.fits, each.time_ratio or 1.0, each.needed.value)))


class _Judge:
    def __init__(self, model: ModelMemory, device: Device, *, risk: float, level: float) -> None:
        self._model, self._device, self._risk, self._level = model, device, risk, level
        self._batch = model.read().batch
        self.before = self._forecast(model.measure())
        self._seconds = self._predict_time(model, self._batch)

    def list_remedies(self) -> Iterator[Remedy]:
        """Every change that this step allows."""
        options = self._model.options
        expandable = self._model.with_settings(AllocatorSettings.parse(EXPANDABLE))
        usage = expandable.measure()
        yield self._build("memory in segments that grow", f"PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}", usage, 1.0)
        if options.mode != "training":
            yield from self._list_smaller_batch(self._model)
            return
        if options.implementation == "foreach":
            yield self._change("fused optimizer", "--optimizer-implementation fused", implementation="fused")
        if not options.checkpointing:
            yield self._change("activation checkpointing", "--checkpointing", checkpointing=True)
        if options.precision in ("fp32", "tf32"):
            kind = "bf16" if "bf16" in list_precisions(self._device) else "fp16"
            if kind in list_precisions(self._device):
                yield self._change(f"mixed precision ({kind})", f"--precision {kind}", precision=kind)
        yield from self._list_smaller_batch(self._model)

    def _list_smaller_batch(self, model: ModelMemory) -> Iterator[Remedy]:
        """The largest batch that fits; in training, with as many batches before an update as make up for it."""

        def find_risk(size: int) -> float:
            return self._forecast(model.measure_batch(size)).find_risk(self._device.usable_memory_bytes)

        fitting = find_largest(find_risk, allowed=self._risk, start=max(1, self._batch // 2))
        if not 0 < fitting < self._batch:
            return
        if model.options.mode != "training":
            seconds = self._predict_time(model, fitting)
            usage = model.measure_batch(fitting)
            yield self._build("smaller batch", f"--batch {fitting}", usage, self._compare(seconds))
            return
        batches = next(count for count in range(2, self._batch + 1) if -(-self._batch // count) <= fitting)
        size = -(-self._batch // batches)
        smaller = model.with_options(accumulation=batches * model.options.accumulation)
        usage = smaller.measure_batch(size)
        ratio = self._compare(self._predict_time(smaller, size))
        words = f"--batch {size} --accumulation {batches * model.options.accumulation}"
        yield self._build("smaller batch, with accumulation", words, usage, ratio)

    def _change(self, name: str, words: str, **options: object) -> Remedy:
        changed = self._model.with_options(**options)
        return self._build(name, words, changed.measure(), self._compare(self._predict_time(changed, self._batch)))

    def _build(self, name: str, words: str, usage: MemoryUsage, ratio: float | None) -> Remedy:
        after = self._forecast(usage)
        return Remedy(
            name=name,
            options=words,
            needed=after.needed,
            freed_bytes=int(self.before.needed.value - after.needed.value),
            fits=after.find_risk(self._device.usable_memory_bytes) <= self._risk,
            time_ratio=ratio,
        )

    def _forecast(self, usage: MemoryUsage) -> MemoryForecast:
        return forecast(usage, self._device, level=self._level)

    def _predict_time(self, model: ModelMemory, batch: int) -> float | None:
        with suppress(ForetellError):  # a device that cannot be predicted
            return model.predict_time(self._device, batch)
        return None

    def _compare(self, seconds: float | None) -> float | None:
        return seconds / self._seconds if seconds is not None and self._seconds else None
