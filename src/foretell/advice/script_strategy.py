"""How a script shares its training among several GPUs: by its wrappers, or by the words in its code."""

import re
from collections.abc import Sequence
from pathlib import Path

from foretell.workloads.scripts.script_facts import RecordedScript

ONE = "one"  # each process would train a model of its own
# What a script says that shares its training, the most specific first.
_WORDS = (
    ("fsdp", re.compile(r"FullyShardedDataParallel|fully_shard\b|FSDPStrategy|fsdp", re.IGNORECASE)),
    (
        "ddp",
        re.compile(
            r"DistributedDataParallel|init_process_group|\baccelerate\b|\bAccelerator\b|\blightning\b|"
            r"pytorch_lightning|transformers.*Trainer|\bTrainer\("
        ),
    ),
)
_LARGEST = 2**20  # bytes of a script that are searched


def find_strategy(script: RecordedScript) -> str:
    """The layout of a script's own: ``ddp``, ``fsdp``, or ``one`` where nothing shares the training."""
    if script.facts.processes > 1:
        return "ddp"
    for name in script.facts.wrappers:
        for layout, pattern in _WORDS:
            if pattern.search(name):
                return layout
    text = _read_script(script.command)
    return next((layout for layout, pattern in _WORDS if pattern.search(text)), ONE)


def _read_script(command: Sequence[str]) -> str:
    """The text of the script that a command names; empty if it cannot be read."""
    path = next((Path(word) for word in command if word.endswith(".py")), None)
    if path is None:
        return ""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST)
    except OSError:
        return ""
