"""Runs the programs and keeps what each took: ``python -m benchmarks programs --measure``."""

import csv
import gzip
import io
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.programs.sweeps import SWEEPS, Configuration

RECORD = Path(__file__).parent / "runs.csv.gz"
HEADS = ("program", "role", "parameters", "elapsed_s", "cpu_s", "peak_memory_bytes", "others_cores")
_WORK = Path(__file__).parent / "work.py"


def measure_all(record: Path = RECORD, *, only_missing: bool = False) -> None:
    """Every run of every sweep, in an order drawn at random so that the machine's moods fall on all alike."""
    kept = _read_kept(record) if only_missing else []
    known = {row[0] for row in kept}
    runs = [(sweep.program, *run) for sweep in SWEEPS if sweep.program not in known for run in sweep.runs()]
    random.Random(0).shuffle(runs)
    rows: list[tuple[Any, ...]] = [*kept]
    for number, (program, role, configuration) in enumerate(runs):
        rows.append((program, role, json.dumps(configuration), *measure(program, configuration)))
        if number % 50 == 0:
            print(f"{number} of {len(runs)} runs", file=sys.stderr, flush=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADS, *sorted(rows, key=lambda row: [str(cell) for cell in row])])
    record.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def _read_kept(record: Path) -> list[tuple[str, ...]]:
    with gzip.open(record, "rt", newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def measure(program: str, configuration: Configuration) -> tuple[float, float, int, float]:
    """Elapsed seconds, CPU seconds, peak bytes of its largest process, and the cores that others used meanwhile."""
    words = [f"{name}={value}" for name, value in configuration.items()]
    busy, started = _busy_s(), time.perf_counter()
    process = subprocess.Popen([sys.executable, str(_WORK), program, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    elapsed_s, busy = time.perf_counter() - started, _busy_s() - busy
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{program} {' '.join(words)} ended with {process.returncode}")
    cpu_s, peak = used.ru_utime + used.ru_stime, int(said.split()[-1])
    return round(elapsed_s, 4), round(cpu_s, 4), peak, round(max(0.0, busy - cpu_s) / elapsed_s, 2)


def _busy_s() -> float:
    """CPU seconds that all processes of the machine have used."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = [int(field) for field in fields]
    return (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")
