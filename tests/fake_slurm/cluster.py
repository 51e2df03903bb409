"""The fake Slurm as its tests see it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(__file__).parent / "bin"
FAULTS = (
    "accounting-off",  # sacct and sacctmgr say that there is no accounting
    "half-rows",  # sacct shows ends without what was asked for, as the real one does when a job is very short
    "kill-after-submit",  # sbatch takes the job, then dies, or with the text "hang" stays, and never answers
    "lag",  # sacct shows what was so many seconds ago
    "max-array-size",  # a number other than 1001
    "max-submit",  # how many jobs an account may have in the queue
    "min-job-age",  # how many seconds squeue knows of a job that ended, other than 300
    "refuse",  # what sbatch says when it takes no job
    "sacct-down",  # the accounting daemon does not answer
    "slurmctld-down",  # the controller does not answer
    "squeue-down",  # only squeue does not answer
    "unknown-state",  # the word sacct has for jobs that ended
)


class FakeSlurm:
    """Small programs that do as Slurm's do, and what they know, in one folder."""

    def __init__(self, folder: Path, *, minute_s: float = 60, slots: int = 4) -> None:
        self.folder = folder
        self.minute_s = minute_s
        self.slots = slots

    @property
    def environment(self) -> dict[str, str]:
        """What puts the fake in the place of a real Slurm."""
        # The tests' own Python comes second: one that a version manager must look up takes three times as long.
        path = os.pathsep.join([str(BIN), str(Path(sys.executable).parent), os.environ["PATH"]])
        knobs = {"FAKE_SLURM_MINUTE": str(self.minute_s), "FAKE_SLURM_SLOTS": str(self.slots)}
        return {"FAKE_SLURM": str(self.folder), "PATH": path, **knobs}

    def set_fault(self, name: str, text: str = "") -> None:
        """Let something go wrong from now on."""
        if name not in FAULTS:
            raise ValueError(f"no fault named {name!r}; known faults: {', '.join(FAULTS)}")
        (self.folder / name).write_text(text)

    def clear_fault(self, name: str) -> None:
        """Let it go well again."""
        (self.folder / name).unlink()

    def run(self, *command: str) -> str:
        """What one of the programs prints."""
        environment = os.environ | self.environment
        return subprocess.run(
            [BIN / command[0], *command[1:]], env=environment, capture_output=True, text=True, check=True
        ).stdout

    def cancel_all(self) -> None:
        """Cancel every job, and wait for their ends."""
        self.run("scancel", "--user=root")
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until no job waits or runs."""
        deadline = time.monotonic() + 60
        while self.run("squeue", "-h"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs do not end: {self.run('squeue', '-h')}")
            time.sleep(0.05)

    def expire(self, job_id: str) -> None:
        """Let a running job's time be over."""
        self.run("scontrol", "update", f"JobId={job_id}", "EndTime=now")

    def end(self) -> None:
        """Kill whatever still runs."""
        while pids := self._find_processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _find_processes(self) -> list[int]:
        mark = os.fsencode(f"FAKE_SLURM={self.folder}\0")
        found = []
        for entry in Path("/proc").iterdir():
            # A zombie has no environment left.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if (
                    entry.name.isdecimal()
                    and int(entry.name) != os.getpid()
                    and mark in (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
        return found
