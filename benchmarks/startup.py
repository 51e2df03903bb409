"""How long ``foretell --help`` takes, beside ``optuna --help``; goal: at most half."""

import shutil
import sys
from pathlib import Path

from benchmarks.timing import time_commands


def run() -> dict[str, float]:
    programs = {name: _find(name) for name in ("foretell", "optuna")}
    seconds = time_commands({name: [path, "--help"] for name, path in programs.items()}, repeats=15)
    return {
        "foretell --help s": seconds["foretell"],
        "optuna --help s": seconds["optuna"],
        "ratio": seconds["foretell"] / seconds["optuna"],
        "goal ratio": 0.5,
    }


def _find(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        sys.exit(f"{name} is not installed; run: {sys.executable} -m pip install -e '.[bench]'")
    return found
