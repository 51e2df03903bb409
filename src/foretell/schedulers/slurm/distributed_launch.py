"""The lines of a job script that start a training: one process for each GPU, on one node or several."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from foretell.core.run import Allocation
from foretell.schedulers.shell_script import render_words

_PORT = 29500  # of the process that the others find each other by
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_ACCELERATE = ("accelerate", "accelerate.commands.launch")


def render_launch(command: Sequence[str], allocation: Allocation, *, scheduled: bool) -> Iterator[str]:
    """Yield the lines that start a command; ``scheduled`` by Slurm, which knows the nodes.

    Raises:
        RunnerError: if the command cannot be written in a script.
    """
    program, script = split_command(command)
    if allocation.gpus * allocation.nodes <= 1:
        yield render_words([*program, *script] if program else script)
    elif allocation.nodes == 1:
        yield _join(_find_launcher(program), f"--standalone --nproc-per-node={allocation.gpus}", script)
    else:
        yield from _render_several(program, script, allocation, scheduled=scheduled)


def split_command(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """The program that starts Python, and what it starts; a launcher of several processes is left out.

    ``python -u train.py --epochs 3`` is ``python -u`` and the rest, as is ``torchrun --nproc-per-node 1 train.py``
    without a program: then it is ``python``.
    """
    words = list(command)
    names = [Path(word).name for word in words]
    launcher = next((place for place, name in enumerate(names) if name in (*_LAUNCHERS, *_ACCELERATE)), None)
    if launcher is not None:
        start = next((at for at in range(launcher + 1, len(words)) if words[at].endswith(".py")), None)
        if start is not None:
            return ["python"] if launcher == 0 else words[: max(1, launcher - 1)], words[start:]
    if names and names[0].startswith("python"):
        start = next((at for at in range(1, len(words)) if words[at] == "-m" or not words[at].startswith("-")), None)
        if start is not None:
            return words[:start], words[start:]
    return [], words


def _find_launcher(program: Sequence[str]) -> str:
    """``torchrun``, or the same of the Python that the command names."""
    if not program or list(program) in (["python"], ["python3"]):
        return "torchrun"
    return f"{render_words(program)} -m torch.distributed.run"


def _render_several(
    program: Sequence[str], script: Sequence[str], allocation: Allocation, *, scheduled: bool
) -> Iterator[str]:
    counts = f"--nnodes={allocation.nodes} --nproc-per-node={allocation.gpus}"
    if not scheduled:
        yield "# on each node, with the name of the first one in HEAD:"
        yield _join(_find_launcher(program), f'{counts} --rdzv-backend=c10d --rdzv-endpoint="$HEAD:{_PORT}"', script)
        return
    yield 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    where = f'--rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$head:{_PORT}"'
    tasks = f"srun --ntasks={allocation.nodes} --ntasks-per-node=1 --cpus-per-task={allocation.cores}"
    yield f"{tasks} --kill-on-bad-exit=1 \\"
    yield f"  {_find_launcher(program)} {counts} \\"
    yield f"  {where} \\"
    yield f"  {_render_script(script)}"


def _join(launcher: str, options: str, script: Sequence[str]) -> str:
    return f"{launcher} {options} {_render_script(script)}"


def _render_script(script: Sequence[str]) -> str:
    """Arguments behind a launcher: none of them is a command of the shell."""
    return render_words(["_", *script]).removeprefix("_ ")
