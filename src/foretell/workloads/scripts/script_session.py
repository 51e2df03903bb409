"""The recording inside the script's process: begins when PyTorch has been imported, ends the process after the step."""

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from foretell.workloads.known_tensors import list_tensors
from foretell.workloads.scripts import cuda_answers, cuda_functions, script_events
from foretell.workloads.scripts.answered_gpu import load_answered
from foretell.workloads.scripts.batch_loading import measure_load
from foretell.workloads.scripts.cuda_answers import replace
from foretell.workloads.scripts.distributed_answers import install_distributed
from foretell.workloads.scripts.host_facts import read_resident_bytes
from foretell.workloads.scripts.process_end import end_process
from foretell.workloads.scripts.script_memory import ScriptMemory
from foretell.workloads.scripts.script_modes import ScriptKernelMode, build_call_modes
from foretell.workloads.scripts.step_records import add_memory, build_result
from foretell.workloads.scripts.step_watch import StepWatch
from foretell.workloads.scripts.written_files import WRITTEN

_MEMORY_STEPS = 2  # the second is like all later ones


def begin(occupied: int | None = None) -> None:
    """Record the first training step of this process, and end the process after it; with memory, after more.

    ``occupied`` is the resident memory of the process before this module was imported.
    """
    watch = StepWatch(_finish)
    if script_events.is_memory_asked():
        watch.memory = ScriptMemory(watch, watch.paths)
        cuda_answers.use_gpu_memory(watch.memory)
    os.register_at_fork(after_in_child=lambda: _forget(watch))
    replace(torch.backends.mkldnn, "enabled", False)  # its recurrent layers are one call without known cost
    torch.backends.nnpack.set_flags(False)  # type: ignore[no-untyped-call]  # lays out gradients otherwise, for some batches
    cuda_functions.install(load_answered())
    install_distributed(watch)
    _watch_modules(watch)
    _watch_backward(watch)
    _watch_optimizers(watch)
    _watch_loaders(watch)
    _watch_checkpoints(watch)
    _replace_compile(watch)
    _watch_saves()
    _watch_threads(watch)
    for mode in _build_modes(watch):
        mode.__enter__()
    watch.own_bytes = max(0, (read_resident_bytes() or 0) - occupied) if occupied is not None else 0
    script_events.report("torch", version=torch.__version__)


def _build_modes(watch: StepWatch) -> list[Any]:
    return [*build_call_modes(watch), ScriptKernelMode(watch)]


def _forget(watch: StepWatch) -> None:
    """Record nothing in a forked process, such as the worker of a loader."""
    watch.active = False
    cuda_answers.use_gpu_memory(None)


def _finish(watch: StepWatch) -> None:
    """Write the recorded step and end the process: nothing of the script runs after this but its exit handlers."""
    frame = sys._getframe()
    try:
        result = watch.result = watch.result or build_result(watch, frame)
        if watch.memory is not None:
            watch.steps += 1
            result = add_memory(result, watch)
            if watch.steps < _MEMORY_STEPS:
                script_events.write_again(script_events.PARTIAL_RESULT, result)
                watch.begin_next_step()
                return
        load_s = measure_load(watch.loader)
        if load_s is not None:
            result["facts"]["load_s"] = load_s
        written = script_events.write_once(script_events.RESULT, result)
        script_events.report("step", first=written)
    except Exception as exc:
        script_events.report("failure", message=f"{type(exc).__name__}: {exc}"[: script_events.LENGTH])
    end_process(watch.iterators)


# What the watch hears of


def _watch_modules(watch: StepWatch) -> None:
    call = nn.Module.__call__

    @functools.wraps(call)
    def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not watch.active:
            return call(self, *args, **kwargs)
        watch.enter(self, args, kwargs)
        try:
            return call(self, *args, **kwargs)
        finally:
            watch.leave(self)

    replace(nn.Module, "__call__", run)


def _watch_backward(watch: StepWatch) -> None:
    for name in ("backward", "grad"):
        run = _during_backward(watch, getattr(torch.autograd, name), whole=name == "backward")
        replace(torch.autograd, name, run)


def _during_backward(watch: StepWatch, run: Callable[..., Any], *, whole: bool) -> Callable[..., Any]:
    @functools.wraps(run)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if not watch.recording:
            return run(*args, **kwargs)
        watch.begin_backward(list(list_tensors((args[:1], kwargs.get("tensors"), kwargs.get("outputs")))), whole=whole)
        try:
            return run(*args, **kwargs)
        finally:
            watch.end_backward(whole=whole)

    return backward


def _watch_optimizers(watch: StepWatch) -> None:
    make = torch.optim.Optimizer.__init__

    @functools.wraps(make)
    def init(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        watch.add_optimizer(self)

    replace(torch.optim.Optimizer, "__init__", init)
    register_optimizer_step_pre_hook(lambda optimizer, *_: watch.begin_update(optimizer) if watch.watching else None)
    register_optimizer_step_post_hook(lambda optimizer, *_: watch.end_update(optimizer) if watch.watching else None)
    for module in (torch.utils._foreach_utils, sys.modules["torch.optim.optimizer"]):
        replace(module, "_get_foreach_kernels_supported_devices", lambda: ["cuda", "cpu"])
    replace(torch.amp.GradScaler, "_maybe_opt_step", _always_step)


def _always_step(_scaler: Any, optimizer: torch.optim.Optimizer, _state: Any, *args: Any, **kwargs: Any) -> Any:
    """The step of a gradient scaler, also where gradients are infinite: those of large tensors are not computed."""
    return optimizer.step(*args, **kwargs)


def _watch_loaders(watch: StepWatch) -> None:
    base = dataloader._BaseDataLoaderIter
    prepare, fetch, make = base.__init__, base.__next__, dataloader.DataLoader.__iter__

    def init(self: Any, loader: Any) -> None:
        prepare(self, loader)
        self._pin_memory = False  # nothing is copied to a GPU

    def iterate(self: Any) -> Any:
        made = make(self)
        replace(made, "_foretell_loader", self)
        if hasattr(made, "_shutdown_workers"):
            watch.iterators.add(made)
        return made

    def give(self: Any) -> Any:
        begin = time.perf_counter()
        with watch.pause():
            batch = fetch(self)
        if watch.active and not getattr(self, "_num_workers", 0):
            watch.fetch_s.append(time.perf_counter() - begin)
        watch.note_batch(getattr(self, "_foretell_loader", None), batch)
        return batch

    replace(base, "__init__", init)
    replace(base, "__next__", give)
    replace(dataloader.DataLoader, "__iter__", iterate)


def _watch_checkpoints(watch: StepWatch) -> None:
    from torch.utils import checkpoint as module

    checkpoint = module.checkpoint

    @functools.wraps(checkpoint)
    def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        recorder = watch.recorder
        if recorder is None or not watch.recording:
            return checkpoint(function, *args, **kwargs)
        watch.checkpointing = True
        return checkpoint(_Recomputed(watch, function, recorder.layers[-1]), *args, **kwargs)

    replace(module, "checkpoint", run)


class _Recomputed:
    """A function that is called once in the forward phase, and again in the backward phase."""

    def __init__(self, watch: StepWatch, function: Callable[..., Any], layer: str) -> None:
        self._watch = watch
        self._function = function
        self._layer = layer
        self._calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        if self._calls == 1:
            return self._function(*args, **kwargs)
        with self._recording_again():
            return self._function(*args, **kwargs)

    @contextlib.contextmanager
    def _recording_again(self) -> Iterator[None]:
        depth = len(self._watch.recorder.layers) if self._watch.recorder else 0
        self._watch.begin_recomputing(self._layer)
        try:
            with contextlib.ExitStack() as stack:
                for mode in build_call_modes(self._watch):
                    stack.enter_context(mode)
                yield
        finally:  # PyTorch leaves a block early once it has what it needs
            self._watch.end_recomputing(depth)


def _replace_compile(watch: StepWatch) -> None:
    """Compiled code runs as it is written; the setting is noted."""

    def compile_(model: Any = None, **_kwargs: Any) -> Any:
        watch.compiled = True
        return (lambda given: given) if model is None else model

    def compile_module(_self: nn.Module, *_args: Any, **_kwargs: Any) -> None:
        watch.compiled = True

    replace(torch, "compile", compile_)
    replace(nn.Module, "compile", compile_module)


def _watch_threads(watch: StepWatch) -> None:
    """Each thread has modes of its own."""
    run = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def begin(self: threading.Thread) -> None:
        with contextlib.ExitStack() as stack:
            for mode in _build_modes(watch):
                stack.enter_context(mode)
            run(self)

    replace(threading.Thread, "_bootstrap_inner", begin)


def _watch_saves() -> None:
    """PyTorch writes its files in C++, which Python does not hear of."""
    save = torch.save

    @functools.wraps(save)
    def write(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
        WRITTEN.note(f)
        save(obj, f, *args, **kwargs)

    replace(torch, "save", write)
