"""Lets a script that uses several processes run as one: of one process, on the CPU."""

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from foretell.workloads.scripts import script_events
from foretell.workloads.scripts.cuda_answers import replace
from foretell.workloads.scripts.step_watch import StepWatch

REFUSED = 70  # the exit code of a process that was asked to be one of several


def install_distributed(watch: StepWatch) -> None:
    """Replace what needs several GPUs."""
    _replace_parallel(watch)
    if torch.distributed.is_available():
        _replace_group()


def refuse_processes() -> None:
    """End the process if it is one of several."""
    world = os.environ.get("WORLD_SIZE", "1")
    if world.isdigit() and int(world) > 1:
        script_events.report("processes", count=int(world))
        os._exit(REFUSED)


def _replace_group() -> None:
    distributed = torch.distributed
    init, new = distributed.init_process_group, distributed.new_group

    @functools.wraps(init)
    def begin(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        refuse_processes()
        if kwargs.get("world_size", -1) > 1:
            script_events.report("processes", count=kwargs["world_size"])
            os._exit(REFUSED)
        init(
            "gloo", *args, **{name: value for name, value in kwargs.items() if name not in ("device_id", "pg_options")}
        )

    @functools.wraps(new)
    def group(ranks: Any = None, timeout: Any = None, backend: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        return new(ranks, timeout, "gloo")

    replace(distributed, "init_process_group", begin)
    replace(distributed, "new_group", group)
    replace(distributed, "is_nccl_available", lambda: True)


def _replace_parallel(watch: StepWatch) -> None:
    """A model that is copied to several GPUs runs as it is."""

    def init(self: Any, module: nn.Module, device_ids: Any = None, *_args: Any, **_kwargs: Any) -> None:
        nn.Module.__init__(self)
        watch.wrappers[type(self).__name__] = None
        self.module = module
        self.device_ids = device_ids
        self.require_backward_grad_sync = True
        self.static_graph = False

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(_self: Any) -> Iterator[None]:
        yield

    for kind in (nn.parallel.DistributedDataParallel, nn.DataParallel):
        replace(kind, "__init__", init)
        replace(kind, "forward", forward)
        replace(kind, "no_sync", no_sync)
    for name in ("register_comm_hook", "_set_static_graph", "_register_fused_optim"):
        replace(nn.parallel.DistributedDataParallel, name, lambda *_args, **_kwargs: None)
