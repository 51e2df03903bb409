"""Which of our modules a command loads: each runs in a process of its own, which lists them when it ends."""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LIST_WHEN_DONE = """
import atexit, importlib, json, os, sys
output, package, entry, *words = sys.argv[1:]
starter = os.getpid()

def write():
    if os.getpid() == starter:  # not in a process forked by the command
        with open(output, "w") as file:
            json.dump([name for name in sys.modules if name.startswith(package + ".")], file)

atexit.register(write)
sys.argv = [package, *words]
module, _, function = entry.partition(":")
getattr(importlib.import_module(module), function)()
"""
_APP_FILE = """\
name: tiny
command: [python3, -c, "sum(range({count}))"]
parameters:
  count: {type: integer, sd: [10000, 20000, 40000, 80000, 160000], fs: [320000, 640000]}
resources: {cores: 1}
"""
_ACCOUNTING = """\
JobID|JobIDRaw|Cluster|User|Account|State|Submit|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|TotalCPU|MaxRSS|JobName
7|7|c1|ada|lab|COMPLETED|2025-03-01T10:00:00|100|60|1|billing=4,cpu=4,mem=8G,node=1|00:03:20||train
7.batch|7.batch|c1|||COMPLETED|2025-03-01T10:01:00|100||1|cpu=4,mem=8G,node=1|00:03:20|1000000K|batch
"""
FILES = {"foretell.yaml": _APP_FILE, "sacct.txt": _ACCOUNTING}

_Words = Sequence[str]
_NETWORK = ("torch.nn:Linear", "--set", "in_features=64", "--set", "out_features=10", "--input", "32,64")
FLOWS: Mapping[str, Mapping[str, _Words]] = {
    "generate": {"generate": ("generate", "--wait-quiet", "no")},
    "build → predict → recommend": {
        "build": ("build",),
        "predict": ("predict", "--set", "count=500000"),
        "recommend": ("recommend", "--set", "count=500000", "--site", "osc", "--output", "job.sbatch"),
    },
    "workload predict": {"workload predict": ("workload", "predict", *_NETWORK, "--device", "T4")},
    "consumption predict": {
        "consumption predict": ("consumption", "predict", *_NETWORK, "--device", "T4", "--link", "1Gb")
    },
    "history import → report": {
        "history import": ("history", "import", "sacct.txt"),
        "history report": ("history", "report"),
    },
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Modules of ours that a command, or all commands of a flow, loaded."""

    modules: frozenset[str]

    def packages(self, package: Path) -> list[str]:
        """The packages right below ours that at least one of the modules is in."""
        names = {name.split(".")[1] for name in self.modules}
        return sorted(name for name in names if (package / name).is_dir())


def measure_flows(
    package: Path,
    *,
    entry: str,
    flows: Mapping[str, Mapping[str, _Words]] = FLOWS,
    files: Mapping[str, str] = FILES,
) -> dict[str, dict[str, Loaded]]:
    """What each command of each flow loads. One folder and store serve all of them, in the order given."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text)
        return {
            flow: {
                command: _run_command(words, package, entry=entry, folder=folder) for command, words in commands.items()
            }
            for flow, commands in flows.items()
        }


def unite(loaded: Iterable[Loaded]) -> Loaded:
    return Loaded(frozenset[str]().union(*(one.modules for one in loaded)))


def find_entry(root: Path, program: str) -> str:
    """Where a checkout's program starts, as ``module:function``."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["scripts"][program])


def _run_command(words: _Words, package: Path, *, entry: str, folder: Path) -> Loaded:
    output = folder / "modules.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-c", _LIST_WHEN_DONE, str(output), package.name, entry, *words]
    done = subprocess.run(command, cwd=folder, env=_clean_environment(package, folder), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{package.name} {' '.join(words)} failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return Loaded(frozenset(json.loads(output.read_text())))


def _clean_environment(package: Path, folder: Path) -> dict[str, str]:
    """Nothing of the user's own: no settings, no store, no learned devices."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("FORETELL", "XDG", "SBATCH", "SLURM"))
    }
    return kept | {"HOME": str(folder), "PYTHONPATH": str(package.parent)}
