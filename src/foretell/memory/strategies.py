"""How a step is shared among GPUs: what one of them holds, the one that holds most."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from foretell.core.errors import Mistake, SpecError
from foretell.core.memory import MemoryTrace
from foretell.memory.fsdp_shards import FsdpOptions, shard_layers
from foretell.memory.gradient_buckets import add_buckets
from foretell.memory.pipeline_stages import split_stages
from foretell.memory.tensor_shards import shard_tensors
from foretell.memory.zero_shards import shard_states
from foretell.workloads.step_options import StepOptions

DATA_PARALLEL = ("ddp", "zero1", "zero2", "zero3", "fsdp")
OFFLOADS = ("optimizer", "parameters")
_NUMBERS = ("tp", "pp", "dp", "micro", "hsdp", "wrap")
_FLAGS = ("sp", "keep", "half-reduce")
_FORMS = (
    f"{', '.join(DATA_PARALLEL)}, tp=N, pp=N, dp=N, micro=N, sp, and with fsdp hsdp=N, wrap=N, keep, half-reduce, "
    "joined by commas as in tp=4,pp=2"
)
# A ring of one communicator has in each channel one buffer for each protocol: LL 8 lines x 512 threads x 8 steps x 16
# bytes, LL128 120 elements x 640 threads x 8 steps x 8 bytes, Simple 4 MiB (NCCL_BUFFSIZE), see NCCL's device.h and
# init.cc. Between GPUs joined by NVSwitch there are 24 channels.
NCCL_BYTES = 24 * (8 * 512 * 8 * 16 + 120 * 640 * 8 * 8 + 4 * 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How many GPUs share a step, and what each of them has a part of.

    Raises:
        SpecError: A number is impossible, or two settings contradict each other.
    """

    gpus: int = 1
    data_parallel: str = ""  # one of DATA_PARALLEL; nothing with one copy of the model
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batches: int = 0  # of a pipeline; 0 for as many as it has stages
    sequence_parallel: bool = False  # outside of the products that tensor parallelism divides
    offload: str = ""  # one of OFFLOADS, to the host
    sharding: FsdpOptions = field(default_factory=FsdpOptions)

    def __post_init__(self) -> None:
        mistakes = list(self._find_mistakes())
        if mistakes:
            raise SpecError("the strategy", mistakes)

    @property
    def copies(self) -> int:
        """Of the model, each with other examples."""
        return self.gpus // (self.tensor_parallel * self.pipeline_parallel)

    @property
    def accumulated(self) -> int:
        """Batches of which a step accumulates the gradients because of the pipeline."""
        return (self.micro_batches or self.pipeline_parallel) if self.pipeline_parallel > 1 else 1

    @property
    def trains_in_half(self) -> bool:
        """Whether mixed precision has its weights in half precision, and copies of them for the optimizer."""
        return self.data_parallel.startswith("zero")

    def __str__(self) -> str:
        parts = [self.data_parallel, *str(self.sharding).split()] if self.data_parallel else []
        parts += [f"tp={self.tensor_parallel}"] if self.tensor_parallel > 1 else []
        parts += ["sp"] if self.sequence_parallel else []
        parts += [f"pp={self.pipeline_parallel}"] if self.pipeline_parallel > 1 else []
        return ",".join(parts) or "one copy"

    def _find_mistakes(self) -> Iterator[Mistake]:
        sizes = {"gpus": self.gpus, "tp": self.tensor_parallel, "pp": self.pipeline_parallel}
        for place, value in sizes.items():
            if value < 1:
                yield Mistake(place=place, found=str(value), expected="1 or more")
        if min(sizes.values()) < 1:
            return
        if self.data_parallel not in ("", *DATA_PARALLEL):
            yield Mistake(place="strategy", found=repr(self.data_parallel), expected=_FORMS)
        shared = self.tensor_parallel * self.pipeline_parallel
        if self.gpus % shared:
            found = f"{self.gpus} GPUs with tp={self.tensor_parallel} and pp={self.pipeline_parallel}"
            yield Mistake(place="gpus", found=found, expected=f"a multiple of {shared}")
        elif self.gpus > shared and not self.data_parallel:
            expected = f"how the {self.gpus // shared} copies share their work: {', '.join(DATA_PARALLEL)}"
            yield Mistake(place="strategy", found=repr(str(self)), expected=expected)
        if self.micro_batches < 0 or (self.micro_batches and self.pipeline_parallel == 1):
            yield Mistake(place="micro", found=str(self.micro_batches), expected="1 or more, with pp=2 or more")
        if self.sequence_parallel and self.tensor_parallel == 1:
            yield Mistake(place="sp", found="tp=1", expected="tp=2 or more, whose GPUs share the sequence")
        if self.sharding != FsdpOptions() and self.data_parallel != "fsdp":
            yield Mistake(
                place="strategy", found=f"{self} with {self.sharding}", expected="fsdp, which these belong to"
            )
        elif self.sharding.group and self.copies % self.sharding.group:
            expected = f"a part of {self.copies} copies: {', '.join(map(str, _list_parts(self.copies)))}"
            yield Mistake(place="hsdp", found=str(self.sharding.group), expected=expected)
        yield from self._find_wrong_offload()

    def _find_wrong_offload(self) -> Iterator[Mistake]:
        if self.offload not in ("", *OFFLOADS):
            yield Mistake(place="offload", found=repr(self.offload), expected=f"one of {', '.join(OFFLOADS)}")
        elif self.offload == "parameters" and self.data_parallel not in ("zero3", "fsdp"):
            expected = "zero3 or fsdp, which gather the weights of one layer at a time"
            yield Mistake(place="offload", found=f"parameters with {self}", expected=expected)
        elif self.offload == "optimizer" and self.data_parallel in ("fsdp", "ddp"):
            expected = "zero1, zero2 or zero3; fsdp with offload 'parameters' moves both"
            yield Mistake(place="offload", found=f"optimizer with {self}", expected=expected)


def parse_strategy(text: str, *, gpus: int | None = None, offload: str = "") -> Strategy:
    """A strategy from words such as ``fsdp``, ``zero3`` or ``tp=4,pp=2,zero1``. No text is ddp, or one GPU.

    Raises:
        SpecError: A word is unknown, or two contradict each other.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    numbers: dict[str, int] = {}
    kinds = []
    for word in words:
        match = re.fullmatch(rf"({'|'.join(_NUMBERS)})=(\d+)", word)
        if match is not None and match[1] not in numbers:
            numbers[match[1]] = int(match[2])
        elif word in DATA_PARALLEL:
            kinds.append(word)
        elif word not in _FLAGS:
            raise _refuse(repr(word), _FORMS)
    if len(kinds) > 1:
        raise _refuse(" and ".join(kinds), "one of them: each divides the same states")
    shared = numbers.get("tp", 1) * numbers.get("pp", 1)
    copies = numbers.get("dp")
    gpus = gpus or shared * (copies or 1)
    if copies is not None and shared * copies != gpus:
        raise _refuse(f"{gpus} GPUs with {text!r}", f"{shared * copies} GPUs: the product of tp, pp and dp")
    return Strategy(
        gpus=gpus,
        data_parallel=kinds[0] if kinds else "ddp" if not words and gpus > 1 else "",
        tensor_parallel=numbers.get("tp", 1),
        pipeline_parallel=numbers.get("pp", 1),
        micro_batches=numbers.get("micro", 0),
        sequence_parallel="sp" in words,
        offload=offload,
        sharding=FsdpOptions(
            group=numbers.get("hsdp", 0),
            layers_per_unit=numbers.get("wrap", 1),
            keeps_gathered="keep" in words,
            reduces_in_half="half-reduce" in words,
        ),
    )


def adapt_options(options: StepOptions, strategy: Strategy) -> StepOptions:
    """The options with which one GPU runs a step: ZeRO trains in half precision, a pipeline in several batches."""
    half = strategy.trains_in_half and options.precision in ("bf16", "fp16")
    batches = max(options.accumulation, strategy.accumulated) if options.mode == "training" else options.accumulation
    return replace(options, precision=f"pure-{options.precision}" if half else options.precision, accumulation=batches)


def apply_strategy(trace: MemoryTrace, strategy: Strategy) -> MemoryTrace:
    """What one GPU holds: of several unequal ones, the one that holds most. The recorded batch is that of one GPU.

    Raises:
        SpecError: The model cannot be divided so.
    """
    if strategy.tensor_parallel > 1:
        trace = shard_tensors(trace, strategy.tensor_parallel, sequence=strategy.sequence_parallel)
    if strategy.pipeline_parallel > 1:
        trace = split_stages(trace, strategy.pipeline_parallel, micro_batches=strategy.accumulated)
    if strategy.data_parallel == "ddp":
        trace = add_buckets(trace) if strategy.copies > 1 else trace
    elif strategy.data_parallel == "fsdp":
        trace = shard_layers(trace, strategy.copies, offload=bool(strategy.offload), options=strategy.sharding)
    elif strategy.data_parallel or strategy.offload:
        stage = int(strategy.data_parallel[-1]) if strategy.data_parallel else 1
        trace = shard_states(trace, strategy.copies, stage=stage, offload=strategy.offload)
    return replace(
        trace,
        outside_bytes=trace.outside_bytes + _count_communicators(strategy) * NCCL_BYTES,
        settings={**trace.settings, "gpus": str(strategy.gpus), "strategy": str(strategy)},
        notes=(*trace.notes, *_find_notes(strategy)),
    )


def _count_communicators(strategy: Strategy) -> int:
    return sum(size > 1 for size in (strategy.copies, strategy.tensor_parallel, strategy.pipeline_parallel))


def _find_notes(strategy: Strategy) -> Iterator[str]:
    if strategy.data_parallel not in ("", "ddp") and strategy.copies == 1 and not strategy.offload:
        yield f"{strategy.data_parallel} with one copy of the model divides nothing: it saves no memory"


def _list_parts(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _refuse(found: str, expected: str) -> SpecError:
    return SpecError("the strategy", [Mistake(place="strategy", found=found, expected=expected)])
