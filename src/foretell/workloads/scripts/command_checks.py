"""What can be said of a command before it starts."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from foretell.core.errors import NotFoundError, WorkloadError

_COUNTS = ("--nproc_per_node", "--nproc-per-node", "--num_processes", "--nnodes", "--num_machines")
_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate.commands.launch",
)
_PARALLEL = ("mpirun", "mpiexec", "srun")
_ISOLATED = ("-I", "-E", "-S")
EXAMPLE = "foretell workload show -- python train.py --batch-size 64"


def check_command(command: Sequence[str]) -> None:
    """Refuse what cannot be recorded.

    Raises:
        SpecError: There is no command.
        NotFoundError: Its program or its script does not exist.
        WorkloadError: It asks for several processes, or for a Python that cannot be entered.
    """
    if not command:
        raise WorkloadError(f"there is no command after '--'. Expected for example: {EXAMPLE}")
    if shutil.which(command[0]) is None:
        raise NotFoundError("program", command[0], hint=f"Expected a command that runs Python, such as: {EXAMPLE}.")
    _check_processes(command)
    _check_script(command)


def _check_processes(command: Sequence[str]) -> None:
    launcher = any(Path(word).name in _LAUNCHERS for word in command)
    for place, word in enumerate(command):
        name, equals, value = word.partition("=")
        if launcher and name in _COUNTS:
            value = value if equals else (command[place + 1] if place + 1 < len(command) else "")
            if _find_most(value) > 1:
                raise refuse_processes(_find_most(value), option=name)
    if Path(command[0]).name in _PARALLEL:
        raise WorkloadError(
            f"{Path(command[0]).name} starts several processes; a step is recorded in one. "
            "Leave it out, and write what comes after it. The batch of one process stays as it is."
        )


def _find_most(value: str) -> int:
    numbers = [int(part) for part in value.split(":") if part.isdigit()]
    return max(numbers, default=1)


def refuse_processes(count: int, *, option: str = "") -> WorkloadError:
    """The error for a command that asks for several processes."""
    remedy = (
        f"Write {option}{'=' if option else ''}1"
        if option
        else "Start it with one, such as torchrun --nproc_per_node 1"
    )
    return WorkloadError(
        f"the command asks for {count} processes; a step is recorded in one. {remedy}: each process computes the same "
        "step on its own batch. 'foretell consumption predict --workers' adds the communication."
    )


def _check_script(command: Sequence[str]) -> None:
    if not Path(command[0]).name.startswith("python"):
        return
    for word in command[1:]:
        if word in ("-m", "-c"):
            return
        if word in _ISOLATED:
            raise WorkloadError(
                f"Python with {word} ignores PYTHONPATH, through which Foretell enters it; leave {word} out"
            )
        if word.startswith("-"):
            continue
        if not Path(word).exists():
            raise NotFoundError("script", word, hint="Run Foretell in the folder in which you run the command.")
        return
