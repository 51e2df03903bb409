"""The inputs of a model and the options of its training step. Does not import PyTorch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretell.core.errors import Mistake, SpecError

LOSSES = ("auto", "cross_entropy", "mse", "sum", "own")
OPTIMIZERS = ("sgd", "adam", "adamw")
IMPLEMENTATIONS = ("for-loop", "foreach", "fused")
PRECISIONS = ("float32", "bf16", "fp16", "pure-bf16", "pure-fp16")  # without "pure": mixed with float32
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:,\d+)*)(?::(?P<dtype>\w+)(?::(?P<high>\d+))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """An input tensor of a model."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int | None = None  # upper limit of integers, such as the size of a vocabulary
    name: str | None = None  # of a keyword argument; None for a positional one

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        kind = "" if self.dtype == "float32" and self.high is None else f":{self.dtype}"
        high = f":{self.high}" if self.high is not None else ""
        return f"{name}{','.join(map(str, self.shape))}{kind}{high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a model is trained.

    Raises:
        SpecError: A value is unknown or too small.
    """

    loss: str = "auto"  # the loss of the model if it returns one, else cross entropy
    optimizer: str = "sgd"
    implementation: str = "for-loop"
    precision: str = "float32"
    accumulation: int = 1  # batches before an update
    checkpointing: bool = False  # activations are computed again in the backward phase

    def __post_init__(self) -> None:
        words = (
            ("loss", self.loss, LOSSES),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("implementation", self.implementation, IMPLEMENTATIONS),
            ("precision", self.precision, PRECISIONS),
        )
        mistakes = [
            Mistake(place=place, found=repr(value), expected=f"one of {', '.join(known)}")
            for place, value, known in words
            if value not in known
        ]
        if self.accumulation < 1:
            mistakes.append(Mistake(place="accumulation", found=str(self.accumulation), expected="1 or more batches"))
        if mistakes:
            raise SpecError("the training step", mistakes)

    @property
    def settings(self) -> dict[str, str]:
        """As text, for a workload."""
        return {
            "loss": self.loss,
            "optimizer": self.optimizer,
            "implementation": self.implementation,
            "precision": self.precision,
            "accumulation": str(self.accumulation),
            "checkpointing": "yes" if self.checkpointing else "no",
        }


def parse_input(text: str) -> InputSpec:
    """An input from ``[NAME=]SHAPE[:DTYPE[:HIGH]]``: ``32,3,224,224`` or ``input_ids=8,128:int64:30522``.

    Raises:
        SpecError: The text has another form.
    """
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
    """The inputs with another batch, which is the first dimension of each."""
    if batch is None:
        return tuple(inputs)
    return tuple(replace(given, shape=(batch, *given.shape[1:])) for given in inputs)


def _refuse(text: str, expected: str) -> SpecError:
    return SpecError("input", [Mistake(place="input", found=repr(text), expected=expected)])
