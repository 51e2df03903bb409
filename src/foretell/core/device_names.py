"""Names of devices as people and drivers write them: vendor words, memory, form of the board, case and punctuation."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

_MEMORY = re.compile(r"(\d+)(?:gib|gb?)")
_FORM = re.compile(r"(sxm|pci|nvl|oam)e?\d?")
_KIND_OF_MEMORY = re.compile(r"(?:hbm|gddr)\d?\w?")
_NOISE = {
    *("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "radeon", "intel", "habana", "corporation", "inc"),
    *("r", "tm", "gpu", "graphics", "card", "accelerator", "generation", "edition", "tensor", "core", "vf"),
    *("dgx", "hgx", "lc"),
}
_LEAST_MEMORY = 4  # GB: "Gaudi 2" has not 2 GB
_SAME_MEMORY = 0.08  # boards are sold as 192 GB whose drivers report 180
_SIMILAR, _SIMILAR_IF_SHORT, _SHORT = 0.6, 0.5, 2
_MOST_SUGGESTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceName:
    """The parts of a name: ``NVIDIA A100-SXM4-80GB`` is the model ``a100`` in the form ``sxm`` with 80 GB."""

    model: str
    form: str = ""
    memory_gb: int = 0

    def fits(self, *, forms: Iterable[str], memory_gb: float) -> bool:
        """Whether a device of this model, in these forms and with this memory, may have this name."""
        same_form = not (self.form and forms) or self.form in forms
        return same_form and (not self.memory_gb or abs(memory_gb / self.memory_gb - 1) <= _SAME_MEMORY)


def spell_name(name: str) -> str:
    """Small letters and digits only."""
    return "".join(filter(str.isalnum, name.lower()))


def parse_name(name: str) -> DeviceName:
    """The parts of a name; a word that is none of them belongs to the model."""
    model, form, memory = "", "", 0
    for word in filter(None, re.split(r"[^a-z0-9]+", name.lower())):
        sized, formed = _MEMORY.fullmatch(word), _FORM.fullmatch(word)
        if formed and not form:
            form = formed[1]
        elif sized and not memory:
            memory = int(sized[1])
        elif word.isdigit() and not memory and model[-1:].isdigit() and int(word) >= _LEAST_MEMORY:
            memory = int(word)  # "A100-80", but not "RTX 4090"
        elif word not in _NOISE and not _KIND_OF_MEMORY.fullmatch(word):
            model += word
    return DeviceName(model=model, form=form, memory_gb=memory)


def find_similar(name: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """Names that may have been meant, the most similar first; ``known`` has a name for each spelling."""
    wanted = parse_name(name).model or spell_name(name)
    if not wanted:
        return ()
    same = [spelling for spelling in known if parse_name(known[spelling]).model == wanted]
    begin = [spelling for spelling in known if spelling.startswith(wanted) or wanted.startswith(spelling)]
    cutoff = _SIMILAR if len(wanted) > _SHORT else _SIMILAR_IF_SHORT
    close = get_close_matches(wanted, known, n=3 * _MOST_SUGGESTIONS, cutoff=cutoff)
    ranked = get_close_matches(wanted, dict.fromkeys([*close, *begin]), n=len(known), cutoff=0.0)
    return tuple(dict.fromkeys(known[spelling] for spelling in (same or ranked)))[:_MOST_SUGGESTIONS]
