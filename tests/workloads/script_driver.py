"""Runs many scripts in one process with PyTorch imported: each in a fork, recorded, or counted by PyTorch itself.

    python script_driver.py record|memory|count JOBS.json

A job is a folder to run in, a folder for its events, and the words of the script.
"""

import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.flop_counter import FlopCounterMode

LIBRARIES = ("transformers.trainer", "transformers.models.bert", "accelerate", "lightning")


def main() -> None:
    how, jobs = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    for name in LIBRARIES:
        importlib.import_module(name)
    for job in jobs:
        child = os.fork()
        if not child:
            run(how, job)
        os.waitpid(child, 0)


def run(how: str, job: dict[str, Any]) -> None:
    os.environ["FORETELL_SCRIPT_FOLDER"] = job["events"]
    os.chdir(job["folder"])
    sys.argv = job["words"]
    sys.path.insert(0, job["path"])
    output = Path(job["events"], "output.txt").open("w", encoding="utf-8")  # noqa: SIM115
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    code = 1
    try:
        if how in ("record", "memory"):
            from foretell.workloads.scripts import script_entry

            script_entry.enter()  # PyTorch is imported: the recording begins
        else:
            count(Path(job["events"], "flops"))
        if job["words"][0].endswith(".py"):
            runpy.run_path(job["words"][0], run_name="__main__")
        else:
            runpy.run_module(job["words"][0], run_name="__main__", alter_sys=True)
        code = 0
    except BaseException as exc:
        sys.excepthook(type(exc), exc, exc.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _NoModules:
    """Instead of PyTorch's tracker of modules, which does not know ``torch.autograd.grad``."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_exc: object) -> None:
        return None


class _Answers:
    """A watch that records nothing."""

    active, paused, recorder = True, False, None

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)


def count(path: Path) -> None:
    """Write the FLOPs of the first step, as PyTorch counts them on real tensors, and end the process."""
    from foretell.workloads.scripts import cuda_answers, cuda_functions
    from foretell.workloads.scripts.answered_gpu import AnsweredGpu
    from foretell.workloads.scripts.distributed_answers import install_distributed
    from foretell.workloads.scripts.script_modes import ScriptCallMode
    from foretell.workloads.scripts.step_watch import StepWatch

    cuda_functions.install(AnsweredGpu())
    install_distributed(StepWatch(lambda _: None))
    cuda_answers.replace(torch, "compile", lambda model=None, **_: (lambda given: given) if model is None else model)
    cuda_answers.replace(torch.nn.Module, "compile", lambda self, **_: None)
    cuda_answers.replace(torch.backends.mkldnn, "enabled", False)
    torch.backends.cuda.enable_flash_sdp(False)
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    optimizers = 2 if Path(sys.argv[0]).name == "gan.py" else 1
    updates: list[str] = []

    def end(_optimizer: Any, *_: Any) -> None:
        updates.append("")
        if len(updates) == optimizers:
            path.write_text(str(counter.get_total_flops()), encoding="utf-8")
            os._exit(0)

    iterate, backward = torch.utils.data.DataLoader.__iter__, torch.autograd.backward
    learned: list[str] = []

    def begin(self: Any) -> Any:
        if not learned:  # what came before was an evaluation
            counter.flop_counts.clear()
        return iterate(self)

    def learn(*args: Any, **kwargs: Any) -> None:
        learned.append("")
        backward(*args, **kwargs)

    torch.utils.data.DataLoader.__iter__ = begin  # type: ignore[method-assign]
    torch.autograd.backward = learn
    register_optimizer_step_post_hook(end)
    ScriptCallMode(_Answers()).__enter__()  # type: ignore[arg-type, no-untyped-call]
    counter.__enter__()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
