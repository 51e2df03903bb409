"""Changes of a training step that need less memory, with what each frees and what time it costs."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from foretell.core.devices import Device, list_precisions
from foretell.core.errors import ForetellError
from foretell.core.layouts import Layout
from foretell.memory.allocator_settings import AllocatorSettings
from foretell.memory.fitting import find_largest
from foretell.memory.forecast import MemoryForecast, forecast
from foretell.memory.memory_results import Remedy
from foretell.memory.model_memory import ModelMemory
from foretell.memory.usage import MemoryUsage
from foretell.workloads.lora_options import parse_lora

_LEAST_FREED = 0.01  # of the need, below which a change is not worth to be named
_GPUS = (2, 4, 8, 16, 32, 64)
_LORA = "r=16"
EXPANDABLE = "expandable_segments:True"


def find_remedies(model: ModelMemory, device: Device, *, risk: float, level: float) -> tuple[Remedy, ...]:
    """The changes that free memory on a device: those that make the step fit first, the fastest of them first.

    Among them, those that train fewer parameters are last.
    """
    judge = _Judge(model, device, risk=risk, level=level)
    found = [each for each in judge.list_remedies() if each.freed_bytes > _LEAST_FREED * judge.before.needed.value]
    return tuple(sorted(found, key=_rank))


def _rank(remedy: Remedy) -> tuple[bool, bool, float, float]:
    return not remedy.fits, not remedy.trains_all, remedy.time_ratio or 1.0, remedy.needed.value


def _take_until_it_fits(remedies: Iterable[Remedy]) -> Iterator[Remedy]:
    """The first that fits; without one, the last."""
    last = None
    for last in remedies:
        if last.fits:
            break
    if last is not None:
        yield last


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
            half = self._find_half()
            if half:
                words = f"--precision pure-{half}"
                yield from self._change(f"weights in half precision ({half})", words, precision=f"pure-{half}")
            yield from self._list_smaller_batch(self._model)
            return
        yield from self._list_changes()
        yield from self._list_smaller_batch(self._model)
        yield from self._list_layouts()

    def _list_changes(self) -> Iterator[Remedy]:
        """Other options of the training; all of those that recompute or compute in half precision, also together."""
        options = self._model.options
        if options.implementation == "foreach":
            yield from self._change("fused optimizer", "--optimizer-implementation fused", implementation="fused")
        half = self._find_half()
        if half:
            yield from self._change(f"mixed precision ({half})", f"--precision {half}", precision=half)
        if options.optimizer in ("adam", "adamw"):
            yield from self._change("optimizer states of 8 bits", "--optimizer adamw8bit", optimizer="adamw8bit")
        if options.lora is None and not options.frozen:
            adapters = self._change("low-rank adapters", f"--lora {_LORA}", lora=parse_lora(_LORA))
            yield from (replace(each, trains_all=False) for each in adapters)
        if options.checkpointing:
            return
        words = "--checkpointing --recompute cheap"
        yield from self._change("selective checkpointing", words, checkpointing=True, recompute="cheap")
        yield from self._change("activation checkpointing", "--checkpointing", checkpointing=True)
        if half:
            words = f"--precision {half} --checkpointing"
            yield from self._change("half precision and checkpointing", words, checkpointing=True, precision=half)

    def _find_half(self) -> str:
        """A type with which the device computes in half precision, if the step has none."""
        if self._model.options.precision not in ("fp32", "tf32"):
            return ""
        return next((each for each in ("bf16", "fp16") if each in list_precisions(self._device)), "")

    def _list_layouts(self) -> Iterator[Remedy]:
        """More ways to share the states among the GPUs, or FSDP on as few GPUs as it takes."""
        own = self._model.layout
        if own.data_parallel == "ddp":
            for kind in ("zero1", "zero2", "fsdp"):
                yield self._share(replace(own, data_parallel=kind))
        elif own.gpus == 1:
            shared = (self._share(Layout(gpus=count, data_parallel="fsdp")) for count in _GPUS)
            yield from _take_until_it_fits(shared)

    def _share(self, layout: Layout) -> Remedy:
        name = f"{layout} on {layout.gpus} GPUs"
        words = f"--gpus {layout.gpus} --layout {layout}"
        return self._build(name, words, self._model.with_layout(layout).measure(), None)

    def _list_smaller_batch(self, model: ModelMemory) -> Iterator[Remedy]:
        """The largest batch that fits; in training, with as many batches before an update as make up for it."""
        learns = model.options.mode == "training"
        smaller = model.with_options(accumulation=2 * model.options.accumulation) if learns else model

        def find_risk(size: int) -> float:
            return self._forecast(smaller.measure_batch(size)).find_risk(self._device.usable_memory_bytes)

        fitting = find_largest(find_risk, allowed=self._risk, start=max(1, self._batch // 2))
        if not 0 < fitting < self._batch:
            return
        if not learns:
            ratio = self._compare(self._predict_time(smaller, fitting))
            yield self._build("smaller batch", f"--batch {fitting}", smaller.measure_batch(fitting), ratio)
            return
        parts = -(-self._batch // fitting)
        size, batches = -(-self._batch // parts), parts * model.options.accumulation
        ratio = self._compare(self._predict_time(model.with_options(accumulation=batches), size))
        words = f"--batch {size} --accumulation {batches}"
        yield self._build("smaller batch, with accumulation", words, smaller.measure_batch(size), ratio)

    def _change(self, name: str, words: str, **options: object) -> Iterator[Remedy]:
        """The step with other options, if the model can run with them."""
        with suppress(ForetellError):
            changed = self._model.with_options(**options)
            yield self._build(name, words, changed.measure(), self._compare(self._predict_time(changed, self._batch)))

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
