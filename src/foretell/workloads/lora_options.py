"""Low-rank adapters of linear layers (https://arxiv.org/abs/2106.09685): their rank and layers. No PyTorch."""

import re
from dataclasses import dataclass

from foretell.core.errors import Mistake, SpecError

ALL_LINEAR = "all-linear"
_FORM = re.compile(r"r=(?P<rank>\d+)(,targets=(?P<targets>[\w.+-]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraOptions:
    """Adapters of the layers whose names end in one of ``targets``; by default of queries and values."""

    rank: int
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"r={self.rank}" + (f",targets={'+'.join(self.targets)}" if self.targets else "")


def parse_lora(text: str) -> LoraOptions:
    """Adapters from ``r=16``, ``r=16,targets=all-linear`` or ``r=16,targets=q_proj+v_proj``.

    Raises:
        SpecError: The text has another form.
    """
    match = _FORM.fullmatch(text.replace(" ", ""))
    if match is None or not int(match["rank"]):
        expected = "r=RANK[,targets=NAME+NAME], as in r=16 or r=16,targets=all-linear"
        raise SpecError("the training step", [Mistake(place="lora", found=repr(text), expected=expected)])
    return LoraOptions(rank=int(match["rank"]), targets=tuple((match["targets"] or "").split("+")) if match[2] else ())
