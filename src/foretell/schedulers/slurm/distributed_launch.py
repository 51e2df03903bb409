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
        yield _render_one(command, program, script)
        return
    yield from _render_settings(command[: len(command) - len(script)])
    if allocation.nodes == 1:
        yield _join(_find_launcher(program), f"--standalone --nproc-per-node={allocation.gpus}", script)
    else:
        yield from _render_several(program, script, allocation, scheduled=scheduled)


def split_command(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """The program that starts Python, and what it starts; a launcher of several processes is left out.

    ``python -u train.py --epochs 3`` is ``python -u`` and the rest, as is ``torchrun --nproc-per-node 1 train.py``
    without a program: then it is ``python``.
    """
    words = list(command)
    launcher = _find_place(words)
    if launcher is not None:
        rest = range(launcher + 1, len(words))
        start = next((at for at in rest if words[at] == "-m" or words[at].endswith(".py")), None)
        if start is not None:
            return ["python"] if launcher == 0 else words[: max(1, launcher - 1)], words[start:]
    if words and Path(words[0]).name.startswith("python"):
        start = next((at for at in range(1, len(words)) if words[at] == "-m" or not words[at].startswith("-")), None)
        if start is not None:
            return words[:start], words[start:]
    return [], words


def _find_place(words: Sequence[str]) -> int | None:
    """Where a command has a launcher of processes."""
    known = (*_LAUNCHERS, *_ACCELERATE)
    return next((place for place, word in enumerate(words) if Path(word).name in known), None)


def _render_one(command: Sequence[str], program: Sequence[str], script: Sequence[str]) -> str:
    """One process: below a launcher if the command has one, as the script may read what that sets (``LOCAL_RANK``)."""
    launcher = _find_place(command)
    if launcher is None:
        return render_words([*program, *script])
    if Path(command[launcher]).name in _ACCELERATE or not program:
        return render_words(command)
    return _join(_find_launcher(program), "--standalone --nproc-per-node=1", script)


def _render_settings(start: Sequence[str]) -> Iterator[str]:
    """What ``accelerate launch``, with the options before the script, would have set for it."""
    launcher = _find_place(start)
    if launcher is None or Path(start[launcher]).name not in _ACCELERATE:
        return
    for place, word in enumerate(start):
        name, equals, value = word.partition("=")
        if name in ("--mixed_precision", "--mixed-precision"):
            value = value if equals else "".join(start[place + 1 : place + 2])
            yield f"export ACCELERATE_MIXED_PRECISION={_render_script([value])}"


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
