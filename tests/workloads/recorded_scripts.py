"""The scripts of the tests, recorded and counted in two processes that import PyTorch once."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import foretell
from foretell.workloads.scripts import script_events
from foretell.workloads.scripts.script_command import CommandOutcome
from foretell.workloads.scripts.script_facts import RecordedScript
from foretell.workloads.scripts.script_results import build_recorded

FOLDER = Path(__file__).parent / "scripts"
DRIVER = Path(__file__).parent / "script_driver.py"
PACKAGE = "forecast.train"
NAMES = (*sorted(path.stem for path in FOLDER.glob("*.py")), PACKAGE)
TIMEOUT_S = 280


@dataclass(frozen=True, slots=True)
class Job:
    """A script that ran: its folder, and the folder with its events."""

    folder: Path
    events: Path

    @property
    def output(self) -> str:
        return (self.events / "output.txt").read_text(encoding="utf-8", errors="replace")

    @property
    def flops(self) -> int:
        """As PyTorch counts them."""
        return int((self.events / "flops").read_text(encoding="utf-8"))

    def find_files(self) -> list[Path]:
        return list(self.folder.rglob("*"))

    def load(self, name: str) -> RecordedScript:
        """The recorded step."""
        outcome = CommandOutcome(
            code=0,
            result=script_events.read_result(self.events),
            events=script_events.read_events(self.events),
            output=tuple(self.output.splitlines()),
        )
        return build_recorded(["python", f"{name}.py"], outcome, timeout_s=1)


def find_scripts() -> dict[str, str]:
    """The word for each of the scripts: a path, or a module."""
    return {name: name if name == PACKAGE else str(FOLDER / f"{name}.py") for name in NAMES}


def run_scripts(how: str, folder: Path, scripts: Mapping[str, str] | None = None) -> dict[str, Job]:
    """Run scripts, by default all: ``record``, ``memory`` or ``count``."""
    scripts = scripts or find_scripts()
    jobs = {name: Job(folder / how / name / "folder", folder / how / name / "events") for name in scripts}
    for job in jobs.values():
        job.folder.mkdir(parents=True)
        job.events.mkdir()
        if how == "memory":
            script_events.ask_for_memory(job.events)
    words = [
        {
            "folder": str(job.folder),
            "events": str(job.events),
            "path": str(FOLDER),
            "words": [scripts[name]],
        }
        for name, job in jobs.items()
    ]
    listed = folder / f"{how}.json"
    listed.write_text(json.dumps(words), encoding="utf-8")
    subprocess.run(
        [sys.executable, str(DRIVER), how, str(listed)], env=_build_environment(), check=True, timeout=TIMEOUT_S
    )
    return jobs


def _build_environment() -> dict[str, str]:
    """As torchrun starts a single process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = str(Path(foretell.__file__).parents[1])
    own = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, **own, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
