"""The inputs of a model and the options of its training step. Does not import PyTorch."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from foretell.core.errors import Mistake, SpecError
from foretell.core.precisions import parse_precision
from foretell.workloads.lora_options import LoraOptions

LOSSES = ("auto", "cross_entropy", "mse", "sum", "own")
FUSED = ("sgd", "adam", "adamw")  # optimizers of which PyTorch has an implementation in one kernel
EIGHT_BITS = "adamw8bit"  # of bitsandbytes
OPTIMIZERS = (*FUSED, "adagrad", "rmsprop", "adafactor", EIGHT_BITS)
IMPLEMENTATIONS = ("for-loop", "foreach", "fused")
MODES = ("training", "inference", "generate")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")

_INPUT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*(?:\.\w+)*)=)?(?P<shape>\d+(?:,\d+)*)(?::(?P<dtype>\w+)(?::(?P<high>\d+))?)?"
)

CONSTANT = "constant"
_IDS = ("int64", "int32")
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """An input of a model: a tensor, or with the type "constant" a value as it is.

    A name may lead into a dictionary, a list or a dataclass: ``batch.image``, ``targets.0.boxes``.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int | None = None  # upper limit of integers, such as the size of a vocabulary
    name: str | None = None  # of a keyword argument; None for a positional one
    value: bool | float | str | None = None  # of a constant

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        if self.dtype == CONSTANT:
            return f"{name}{self.value}".lower() if not isinstance(self.value, str) else f"{name}{self.value}"
        kind = "" if self.dtype == "float32" and self.high is None else f":{self.dtype}"
        high = f":{self.high}" if self.high is not None else ""
        return f"{name}{','.join(map(str, self.shape))}{kind}{high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a model is trained, or applied. Defaults are PyTorch's own on a GPU.

    Raises:
        SpecError: A value is unknown or too small, or two exclude each other.
    """

    loss: str = "auto"  # the loss of the model if it returns one, else cross entropy
    optimizer: str = "sgd"
    implementation: str = "foreach"  # of the optimizer
    precision: str = "fp32"  # any usual name is understood, such as float32 or half
    accumulation: int = 1  # batches before an update
    checkpointing: bool = False  # activations are computed again in the backward phase
    recompute: str = "all"  # of which: all, every=2 (of every second block), or cheap (all but products and attention)
    channels_last: bool = False  # images and filters have their channels last in memory
    compile: bool = False  # chains of element-wise operators are fused, as by torch.compile
    mode: str = "training"
    prompt: int | None = None  # tokens that are read before the first is generated
    new: int | None = None  # tokens to generate
    frozen: tuple[str, ...] = ()  # parameters or layers that are not trained, by name or pattern, as in model.layers.*
    lora: LoraOptions | None = None  # adapters that are trained instead of all parameters

    def __post_init__(self) -> None:
        mistakes = [*self._normalize_precision(), *self._find_unknown_words(), *self._find_wrong_numbers()]
        if mistakes:
            raise SpecError("the training step", mistakes)

    def _normalize_precision(self) -> Iterator[Mistake]:
        try:
            object.__setattr__(self, "precision", parse_precision(self.precision))
        except ValueError as exc:
            yield Mistake(place="precision", found=repr(self.precision), expected=str(exc))

    def _find_unknown_words(self) -> Iterator[Mistake]:
        words = (
            ("loss", self.loss, LOSSES),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("implementation", self.implementation, IMPLEMENTATIONS),
            ("mode", self.mode, MODES),
        )
        for place, value, known in words:
            if value not in known:
                near = difflib.get_close_matches(value, known, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                yield Mistake(place=place, found=repr(value), expected=f"one of {', '.join(known)}{meant}")

    def _find_wrong_numbers(self) -> Iterator[Mistake]:
        if self.accumulation < 1:
            yield Mistake(place="accumulation", found=str(self.accumulation), expected="1 or more batches")
        for place, tokens in (("prompt", self.prompt), ("new", self.new)):
            if tokens is None:
                continue
            if tokens < 1:
                yield Mistake(place=place, found=str(tokens), expected="1 or more tokens")
            if self.mode != "generate":
                yield Mistake(place=place, found=str(tokens), expected="mode 'generate' with a number of tokens")
        if self.implementation == "fused" and self.optimizer not in FUSED:
            expected = f"'for-loop' or 'foreach' with optimizer {self.optimizer!r}"
            yield Mistake(place="implementation", found="'fused'", expected=expected)
        if self.frozen and self.lora is not None:
            expected = "one of them: adapters freeze everything else"
            yield Mistake(place="frozen", found=f"{', '.join(self.frozen)} with adapters", expected=expected)
        if find_every(self.recompute) is None:
            expected = "all, every=N (every N-th block), or cheap (all but the results of products and attention)"
            yield Mistake(place="recompute", found=repr(self.recompute), expected=expected)
        elif self.recompute != "all" and not self.checkpointing:
            yield Mistake(place="recompute", found=repr(self.recompute), expected="checkpointing as well")
        if self.mode != "training":
            yield from self._find_training_only()

    def _find_training_only(self) -> Iterator[Mistake]:
        """Options that have no meaning without a backward phase."""
        if self.accumulation > 1:
            yield Mistake(place="accumulation", found=str(self.accumulation), expected=f"1 in mode {self.mode!r}")
        if self.checkpointing:
            yield Mistake(place="checkpointing", found="yes", expected=f"none in mode {self.mode!r}")
        if self.frozen:
            yield Mistake(place="frozen", found=", ".join(self.frozen), expected=f"none in mode {self.mode!r}")

    @property
    def settings(self) -> dict[str, str]:
        """As text, for a workload."""
        common = {
            "mode": self.mode,
            "precision": self.precision,
            "channels_last": "yes" if self.channels_last else "no",
            "compile": "yes" if self.compile else "no",
            **({"lora": str(self.lora)} if self.lora is not None else {}),
        }
        if self.mode != "training":
            return common
        return {
            "loss": self.loss,
            "optimizer": self.optimizer,
            "implementation": self.implementation,
            "accumulation": str(self.accumulation),
            "checkpointing": "yes" if self.checkpointing else "no",
            **({"frozen": ",".join(self.frozen)} if self.frozen else {}),
            **({"recompute": self.recompute} if self.recompute != "all" else {}),
            **common,
        }


def find_every(recompute: str) -> int | None:
    """Of how many blocks one is computed again; None if these are not the words for it."""
    if recompute in ("all", "cheap"):
        return 1
    match = re.fullmatch(r"every=([1-9]\d{0,3})", recompute)
    return int(match[1]) if match else None


def parse_input(text: str) -> InputSpec:
    """An input from ``[NAME=]SHAPE[:DTYPE[:HIGH]]``: ``32,3,224,224`` or ``input_ids=8,128:int64:30522``.

    ``NAME=true``, ``false`` and ``none`` are passed as they are. ``NAME.KEY=…`` is a part of a dictionary, a list or a
    dataclass.

    Raises:
        SpecError: The text has another form.
    """
    name, _, word = text.partition("=")
    if word.lower() in _WORDS and _INPUT.fullmatch(f"{name}=1"):
        return InputSpec(shape=(), dtype=CONSTANT, name=name, value=_WORDS[word.lower()])
    match = _INPUT.fullmatch(text.replace(" ", ""))
    if match is None:
        raise _refuse(text, "[NAME=]SHAPE[:DTYPE[:HIGH]], as in 32,3,224,224 or input_ids=8,128:int64:30522")
    dtype = match["dtype"] or "float32"
    if dtype not in DTYPES:
        raise _refuse(text, f"a type among {', '.join(DTYPES)}")
    shape = tuple(int(size) for size in match["shape"].split(","))
    if 0 in shape:
        raise _refuse(text, "sizes of 1 or more")
    return InputSpec(shape=shape, dtype=dtype, high=int(match["high"]) if match["high"] else None, name=match["name"])


def resize(inputs: Sequence[InputSpec], batch: int | None) -> tuple[InputSpec, ...]:
    """The inputs with another batch, which is the first dimension of each tensor."""
    if batch is None:
        return tuple(inputs)
    return tuple(replace(given, shape=(batch, *given.shape[1:])) if given.shape else given for given in inputs)


def find_length(inputs: Sequence[InputSpec]) -> int | None:
    """Tokens of each example, if an input has token ids."""
    return next((each.shape[1] for each in inputs if each.dtype in _IDS and len(each.shape) == 2), None)


def set_length(inputs: Sequence[InputSpec], length: int | None) -> tuple[InputSpec, ...]:
    """The inputs with another number of tokens: the second dimension of token ids, and of what is as long as they.

    Raises:
        SpecError: No input has tokens.
    """
    if length is None:
        return tuple(inputs)
    tokens = find_length(inputs)
    if tokens is None:
        expected = "an input of token ids with shape batch,tokens, such as ids=8,512:int64:32000"
        raise SpecError("the step", [Mistake(place="input", found="none with tokens", expected=expected)])
    return tuple(
        replace(each, shape=(each.shape[0], *(length if size == tokens else size for size in each.shape[1:])))
        if len(each.shape) > 1
        else each
        for each in inputs
    )


def _refuse(text: str, expected: str) -> SpecError:
    return SpecError("input", [Mistake(place="input", found=repr(text), expected=expected)])
