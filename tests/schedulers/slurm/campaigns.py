"""Campaigns whose runs count their starts, for tests that inject faults."""

import os
import subprocess
import sys
import textwrap
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import foretell
from foretell.campaigns.campaign_plan import CampaignResult, Progress
from foretell.core.app import App
from foretell.core.run import Run, State

_PATIENCE_S = 60.0
# Runs wait until this file is removed.
_GATE = 'while [ -e "$PARAM_app_dir/hold" ]; do sleep 0.1; done'


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Runs ``0`` to ``count - 1`` of an app with a unique name; each appends its number to a diary."""

    folder: Path
    name: str
    count: int

    @classmethod
    def build(cls, folder: Path, *, count: int = 4, shell: str = "true", more: str = "") -> "Sweep":
        sweep = cls(folder=folder, name=f"t{uuid.uuid4().hex[:8]}", count=count)
        sweep.write(shell, more)
        return sweep

    def write(self, shell: str, more: str = "") -> None:
        diary = 'echo "$PARAM_n" >> "$PARAM_app_dir/diary.txt"'
        numbers = ", ".join(map(str, range(self.count)))
        self.file.write_text(
            f"name: {self.name}\nshell: |\n  {diary}\n  {_GATE}\n  {shell}\n"
            f"parameters: {{n: {{values: [{numbers}]}}}}\nrunner: slurm\n{more}"
        )

    @property
    def file(self) -> Path:
        return self.folder / "foretell.yaml"

    @property
    def app(self) -> App:
        return foretell.load_app(self.file)

    @property
    def diary(self) -> Counter[int]:
        """How often each run was started."""
        path = self.folder / "diary.txt"
        return Counter(map(int, path.read_text().split())) if path.exists() else Counter()

    @property
    def runs(self) -> list[Run]:
        with foretell.open_store(self.folder / ".foretell/store.db") as store:
            return store.runs(self.name)

    @property
    def states(self) -> dict[State, int]:
        return dict(Counter(run.state for run in self.runs))

    @property
    def batches(self) -> list[str]:
        """Job ids of unfinished batches."""
        with foretell.open_store(self.folder / ".foretell/store.db") as store:
            return [batch.job_id for batch in store.batches(self.name)]

    def hold(self) -> None:
        """Keep all runs from ending."""
        (self.folder / "hold").touch()

    def release(self) -> None:
        (self.folder / "hold").unlink()

    def has_started(self, _: Progress) -> bool:
        """Return whether every run has started."""
        return len(self.diary) == self.count

    def generate(self, *steps: "Step", **words: object) -> CampaignResult:
        """Make all runs while the steps happen one after the other."""
        return foretell.generate(self.app, wait=True, on_progress=Steps(*steps), **words)  # type: ignore[arg-type]

    def list_jobs(self) -> list[str]:
        """Return accounting's records: the elements of each array, or jobs."""
        rows = ask("sacct", "-nXP", "-S", "now-1hour", "-o", "JobID,JobName")
        return [job_id for job_id, name in rows if name.startswith(f"{self.name}-")]

    def check(self, states: dict[State, int] | None = None, *, begun: int = 1) -> None:
        """Check that every run is stored once, nothing is unfinished, and each was started so often."""
        assert self.states == (states or {State.COMPLETED: self.count}), [(run.state, run.reason) for run in self.runs]
        assert self.batches == []
        assert self.diary == Counter(dict.fromkeys(range(self.count), begun))

    def check_submitted_once(self) -> None:
        """Check that accounting has as many elements as there are runs; very short ones may be late."""
        wait_for(lambda: len(self.list_jobs()) >= self.count)
        assert len(self.list_jobs()) == self.count


Step = tuple[Callable[[Progress], object], Callable[[], object]]


class Steps:
    """Does one action after the other, each when its condition holds."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)

    def __call__(self, progress: Progress) -> None:
        if self._steps and self._steps[0][0](progress):
            self._steps.pop(0)[1]()


def on_note(words: str) -> Callable[[Progress], bool]:
    return lambda progress: words in progress.note


def ask(*command: str) -> list[list[str]]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("|") for line in done.stdout.splitlines()]


def list_queue(job_id: str) -> dict[str, str]:
    """Return states by index."""
    command = ["squeue", "-h", "-r", "-t", "all", "-j", job_id, "-o", "%K|%T"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return dict(line.split("|") for line in done.stdout.splitlines())


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def start_python(program: str, *words: str) -> subprocess.Popen[str]:
    """Start another Python process with this environment."""
    quick = "from foretell.schedulers.slurm import runner; runner._MIN_INTERVAL_S = 0.3\n"
    return subprocess.Popen(
        [sys.executable, "-c", quick + textwrap.dedent(program), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
