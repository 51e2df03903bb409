"""Work in a process of its own, with a heap that nobody has used.

On a CPU, a step's time depends on what its process did before: the allocator keeps or gives back memory by the largest
blocks it has seen. A user trains one model in a new process, so that is where steps are measured. All such processes
are copies of one that has imported what they need and done nothing else; a copy takes milliseconds.
"""

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import ParamSpec, TypeVar, cast

from foretell.errors import ForetellError, WorkloadError

Given = ParamSpec("Given")
Result = TypeVar("Result")

_PRELOADED = ["torch._dynamo", "foretell.workloads.learning"]  # the first is what any optimizer imports


def run_apart(function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """What a function of a module gives back; an error of ours is raised here, too.

    Raises:
        WorkloadError: The process ended before it answered.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, args, kwargs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = ours.recv()
    except EOFError:
        process.join()
        raise WorkloadError(
            f"the process that measured ended without an answer (exit code {process.exitcode}); "
            "it may have had too little memory. Use a smaller batch."
        ) from None
    finally:
        if process.is_alive():
            process.join(1.0)
        if process.is_alive():  # we were interrupted
            process.terminate()
        process.join()
        ours.close()
    if isinstance(answer, ForetellError):
        raise answer
    return cast("Result", answer)


def _answer(
    pipe: Connection, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked decides
    try:
        pipe.send(function(*args, **kwargs))
    except ForetellError as exc:
        pipe.send(WorkloadError(str(exc)))
    finally:
        pipe.close()
