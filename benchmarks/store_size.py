"""Whether a long history slows the commands down: 100,000 stored runs against 1,000; goal: at most 1.5 times."""

import sys
import tempfile
from pathlib import Path

from benchmarks.histories import APP, make_runs
from benchmarks.timing import time_commands
from foretell import stores as foretell_stores
from foretell.runtimes import api as api_learning

SMALL, LARGE = 1_000, 100_000
QUESTION = ["--set", "steps=5000", "--set", "size=300", "--set", "method=implicit"]


def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        stores = {count: Path(folder) / f"{count}.db" for count in (SMALL, LARGE)}
        for count, path in stores.items():
            with foretell_stores.open_store(path) as store:
                store.save_app(APP)
                store.add_runs(make_runs(count))
                api_learning.build(APP, store=store)
        output = ["--output", str(Path(folder) / "job.sbatch")]
        commands = {
            f"{name} {count}": [sys.executable, "-m", "foretell", *words, "--store", str(path)]
            for name, words in {
                "runs list": ["runs", "list", APP.name],
                "predict": ["predict", APP.name, *QUESTION],
                "recommend": ["recommend", APP.name, *QUESTION, "--site", "osc", *output],
            }.items()
            for count, path in stores.items()
        }
        seconds = time_commands(commands, repeats=7)
    ratios = {
        f"{name}: ratio": seconds[f"{name} {LARGE}"] / seconds[f"{name} {SMALL}"]
        for name in ("runs list", "predict", "recommend")
    }
    return {f"{name} s": value for name, value in seconds.items()} | ratios | {"goal ratio": 1.5}
