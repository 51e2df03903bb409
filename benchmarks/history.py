"""Importing a million lines of accounting against reading them as CSV; goal: at most 4 times as long."""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.accounting import write_accounting
from benchmarks.timing import time_calls
from foretell.history import api

SMALL, LARGE = 100_000, 1_000_000
REPEATS = 3
# Its own process, because a peak of memory is of a process; Linux reports it in kilobytes.
_IMPORT = """
import re, sys
from pathlib import Path
from foretell import api
api.import_history([sys.argv[1]], store=sys.argv[2])
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
"""


def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        texts = {lines: Path(folder) / f"{lines}.txt" for lines in (SMALL, LARGE)}
        for lines, path in texts.items():
            write_accounting(path, lines=lines)
        seconds = time_calls(
            {"csv": lambda: _read_csv(texts[LARGE]), "import": lambda: _import(texts[LARGE])}, repeats=REPEATS
        )
        store = Path(folder) / "twice.db"
        first, again = (api.import_history([texts[SMALL]], store=store) for _ in range(2))
        peaks = {lines: _find_peak(path, Path(folder) / f"{lines}.db") for lines, path in texts.items()}
        return {
            "lines": LARGE,
            "text MB": texts[LARGE].stat().st_size / 1e6,
            "plain csv s": seconds["csv"],
            "import s": seconds["import"],
            "ratio": seconds["import"] / seconds["csv"],
            "goal ratio": 4,
            f"peak MB, {SMALL:,} lines": peaks[SMALL] / 1e6,
            f"peak MB, {LARGE:,} lines": peaks[LARGE] / 1e6,
            "store MB": (Path(folder) / f"{LARGE}.db").stat().st_size / 1e6,
            f"jobs in {SMALL:,} lines": first.changed,
            "changed by importing them again": again.changed,
        }


def _read_csv(path: Path) -> None:
    with path.open(newline="", encoding="utf-8") as file:
        for _ in csv.reader(file, delimiter="|"):
            pass


def _import(path: Path) -> None:
    """Into a store of its own: what was read before is not read again."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        api.import_history([path], store=Path(folder) / "store.db")


def _find_peak(path: Path, store: Path) -> int:
    words = [sys.executable, "-c", _IMPORT, str(path), str(store)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
