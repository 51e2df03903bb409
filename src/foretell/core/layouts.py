"""How a training step is shared among GPUs: copies of the model, and the parts of one copy."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from foretell.core.errors import Mistake, SpecError

DATA_PARALLEL = ("ddp", "zero1", "zero2", "zero3", "fsdp")
OFFLOADS = ("optimizer", "parameters")
_NUMBERS = ("tp", "pp", "dp", "cp", "ep", "micro", "interleave", "hsdp", "wrap")
_FLAGS = ("sp", "tp-overlap", "no-overlap", "keep", "half-reduce")
LAYOUT_FORMS = (
    f"{', '.join(DATA_PARALLEL)}, tp=N, pp=N, dp=N, cp=N, ep=N, micro=N, interleave=N, sp, tp-overlap, no-overlap, "
    "and with fsdp hsdp=N, wrap=N, keep, half-reduce, joined by commas as in tp=4,pp=2"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpOptions:
    """The arguments of ``fully_shard``, with its defaults."""

    group: int = 0  # GPUs that share the weights, of which the others have copies (HSDP); 0 for all of them
    layers_per_unit: int = 1  # that are gathered together; 0 for the whole model at once
    keeps_gathered: bool = False  # weights stay gathered after the forward phase (reshard_after_forward=False)
    reduces_in_half: bool = False  # gradients are reduced in half precision (reduce_dtype)

    def __str__(self) -> str:
        parts = [f"hsdp={self.group}"] if self.group else []
        parts += [f"wrap={self.layers_per_unit}"] if self.layers_per_unit != 1 else []
        parts += ["keep"] if self.keeps_gathered else []
        return ",".join([*parts, *(["half-reduce"] if self.reduces_in_half else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How many GPUs share a step, and what each of them has a part of.

    GPUs are numbered as in Megatron-LM: those of a tensor-parallel group are neighbours, then those that share a
    sequence, then the copies of the model; the stages of a pipeline are farthest from each other.

    Raises:
        SpecError: A number is impossible, or two settings contradict each other.
    """

    gpus: int = 1
    data_parallel: str = ""  # one of DATA_PARALLEL; nothing with one copy of the model
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1  # GPUs that share each sequence
    expert_parallel: int = 1  # GPUs, among those of different copies, that share the experts
    micro_batches: int = 0  # of a pipeline; 0 for as many as it has stages
    interleave: int = 1  # parts of the model on each stage of a pipeline
    sequence_parallel: bool = False  # outside of the products that tensor parallelism divides
    overlaps_tensors: bool = False  # the exchanges of tensor parallelism with its products, as Transformer Engine can
    overlaps: bool = True  # the exchange of gradients and weights with the computing
    offload: str = ""  # one of OFFLOADS, to the host
    sharding: FsdpOptions = field(default_factory=FsdpOptions)

    def __post_init__(self) -> None:
        mistakes = list(self._find_mistakes())
        if mistakes:
            raise SpecError("the layout", mistakes)

    @property
    def model_parallel(self) -> int:
        """GPUs of one copy of the model."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def copies(self) -> int:
        """Of the model, each with other examples."""
        return self.gpus // self.model_parallel

    @property
    def accumulated(self) -> int:
        """Batches of which a step accumulates the gradients because of the pipeline."""
        return (self.micro_batches or self.pipeline_parallel) if self.pipeline_parallel > 1 else 1

    @property
    def trains_in_half(self) -> bool:
        """Whether mixed precision has its weights in half precision, and copies of them for the optimizer."""
        return self.data_parallel.startswith("zero")

    @property
    def sharding_gpus(self) -> int:
        """GPUs among which the states of one copy of the model are divided."""
        return self.sharding.group or self.copies * self.context_parallel

    def __str__(self) -> str:
        parts = [f"dp={self.copies}"] if self.copies > 1 and self.model_parallel > 1 else []
        parts += [self.data_parallel, *filter(None, [str(self.sharding)])] if self.data_parallel else []
        parts += [f"tp={self.tensor_parallel}"] if self.tensor_parallel > 1 else []
        parts += ["sp"] if self.sequence_parallel else []
        parts += [f"cp={self.context_parallel}"] if self.context_parallel > 1 else []
        parts += [f"ep={self.expert_parallel}"] if self.expert_parallel > 1 else []
        parts += [f"pp={self.pipeline_parallel}"] if self.pipeline_parallel > 1 else []
        parts += [f"micro={self.micro_batches}"] if self.micro_batches else []
        parts += [f"interleave={self.interleave}"] if self.interleave > 1 else []
        parts += ["tp-overlap"] if self.overlaps_tensors else []
        parts += [] if self.overlaps else ["no-overlap"]
        return ",".join(parts) or "one copy"

    def _find_mistakes(self) -> Iterator[Mistake]:
        sizes = {
            "gpus": self.gpus,
            "tp": self.tensor_parallel,
            "pp": self.pipeline_parallel,
            "cp": self.context_parallel,
            "ep": self.expert_parallel,
            "interleave": self.interleave,
        }
        for place, value in sizes.items():
            if value < 1:
                yield Mistake(place=place, found=str(value), expected="1 or more")
        if min(sizes.values()) < 1:
            return
        if self.data_parallel not in ("", *DATA_PARALLEL):
            yield Mistake(place="layout", found=repr(self.data_parallel), expected=LAYOUT_FORMS)
        shared = self.model_parallel
        if self.gpus % shared:
            parts = {name: sizes[name] for name in ("tp", "pp", "cp") if sizes[name] > 1 or name != "cp"}
            found = f"{self.gpus} GPUs with {' and '.join(f'{name}={size}' for name, size in parts.items())}"
            yield Mistake(place="gpus", found=found, expected=f"a multiple of {shared}")
        elif self.copies > 1 and not self.data_parallel:
            expected = f"how the {self.copies} copies share their work: {', '.join(DATA_PARALLEL)}"
            yield Mistake(place="layout", found=repr(str(self)), expected=expected)
        if self.micro_batches < 0 or (self.micro_batches and self.pipeline_parallel == 1):
            yield Mistake(place="micro", found=str(self.micro_batches), expected="1 or more, with pp=2 or more")
        if self.overlaps_tensors and not self.sequence_parallel:
            yield Mistake(place="tp-overlap", found="without sp", expected="sp, which divides its exchanges in two")
        if self.sequence_parallel and self.tensor_parallel == 1:
            yield Mistake(place="sp", found="tp=1", expected="tp=2 or more, whose GPUs share the sequence")
        yield from self._find_wrong_sharding()
        yield from self._find_wrong_interleave()
        yield from self._find_wrong_offload()

    def _find_wrong_sharding(self) -> Iterator[Mistake]:
        if self.sharding != FsdpOptions() and self.data_parallel != "fsdp":
            yield Mistake(place="layout", found=f"{self} with {self.sharding}", expected="fsdp, which these belong to")
        elif self.sharding.group and self.copies % self.sharding.group:
            expected = f"a part of {self.copies} copies: {', '.join(map(str, _list_parts(self.copies)))}"
            yield Mistake(place="hsdp", found=str(self.sharding.group), expected=expected)
        sharing = self.copies * self.context_parallel * self.tensor_parallel
        if self.gpus % self.model_parallel == 0 and sharing % self.expert_parallel:
            expected = f"a part of the {sharing} GPUs of a stage: {', '.join(map(str, _list_parts(sharing)))}"
            yield Mistake(place="ep", found=str(self.expert_parallel), expected=expected)

    def _find_wrong_interleave(self) -> Iterator[Mistake]:
        if self.interleave == 1:
            return
        if self.pipeline_parallel == 1:
            yield Mistake(
                place="interleave", found=str(self.interleave), expected="1 without a pipeline (pp=2 or more)"
            )
        elif self.accumulated % self.pipeline_parallel:
            found = f"{self.accumulated} micro-batches on {self.pipeline_parallel} stages"
            yield Mistake(
                place="micro", found=found, expected=f"with interleave, a multiple of {self.pipeline_parallel}"
            )

    def _find_wrong_offload(self) -> Iterator[Mistake]:
        if self.offload not in ("", *OFFLOADS):
            yield Mistake(place="offload", found=repr(self.offload), expected=f"one of {', '.join(OFFLOADS)}")
        elif self.offload == "parameters" and self.data_parallel not in ("zero3", "fsdp"):
            expected = "zero3 or fsdp, which gather the weights of one layer at a time"
            yield Mistake(place="offload", found=f"parameters with {self}", expected=expected)
        elif self.offload == "optimizer" and self.data_parallel in ("fsdp", "ddp"):
            expected = "zero1, zero2 or zero3; fsdp with offload 'parameters' moves both"
            yield Mistake(place="offload", found=f"optimizer with {self}", expected=expected)


def parse_layout(text: str, *, gpus: int | None = None, offload: str = "") -> Layout:
    """A layout from words such as ``fsdp``, ``zero3`` or ``tp=4,pp=2,zero1``.

    Copies of the model whose sharing is not named are those of ddp. Without a number of GPUs, it is the product of all.

    Raises:
        SpecError: A word is unknown, or two contradict each other.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    numbers: dict[str, int] = {}
    kinds = []
    for word in words:
        match = re.fullmatch(rf"({'|'.join(_NUMBERS)})=(\d+)", word)
        if match is not None and match[1] in numbers:
            raise _refuse(f"{match[1]} twice in {text!r}", "each of them once")
        if match is not None:
            numbers[match[1]] = int(match[2])
        elif word in DATA_PARALLEL:
            kinds.append(word)
        elif word not in _FLAGS:
            raise _refuse(repr(word), LAYOUT_FORMS)
    if len(kinds) > 1:
        raise _refuse(" and ".join(kinds), "one of them: each divides the same states")
    shared = numbers.get("tp", 1) * numbers.get("pp", 1) * numbers.get("cp", 1)
    copies = numbers.get("dp")
    gpus = gpus or shared * (copies or 1)
    if copies is not None and shared * copies != gpus:
        raise _refuse(f"{gpus} GPUs with {text!r}", f"{shared * copies} GPUs: the product of tp, pp, cp and dp")
    return Layout(
        gpus=gpus,
        data_parallel=kinds[0] if kinds else "ddp" if shared and gpus > shared else "",
        tensor_parallel=numbers.get("tp", 1),
        pipeline_parallel=numbers.get("pp", 1),
        context_parallel=numbers.get("cp", 1),
        expert_parallel=numbers.get("ep", 1),
        micro_batches=numbers.get("micro", 0),
        interleave=numbers.get("interleave", 1),
        sequence_parallel="sp" in words,
        overlaps_tensors="tp-overlap" in words,
        overlaps="no-overlap" not in words,
        offload=offload,
        sharding=FsdpOptions(
            group=numbers.get("hsdp", 0),
            layers_per_unit=numbers.get("wrap", 1),
            keeps_gathered="keep" in words,
            reduces_in_half="half-reduce" in words,
        ),
    )


def find_experts(layer: str) -> bool:
    """Whether a layer is an expert, or the experts, of a mixture."""
    return "experts" in layer.split(".") and "shared_experts" not in layer.split(".")


def _list_parts(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _refuse(found: str, expected: str) -> SpecError:
    return SpecError("the layout", [Mistake(place="layout", found=found, expected=expected)])
