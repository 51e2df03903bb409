"""Lets a script that uses several processes run as one: of one process, on the CPU."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from foretell.core.memory import MemoryKind
from foretell.workloads.scripts import script_events
from foretell.workloads.scripts.cuda_answers import replace
from foretell.workloads.scripts.import_callbacks import call_after_import
from foretell.workloads.scripts.script_memory import ScriptMemory
from foretell.workloads.scripts.sharded_models import replace_fully_shard, wrap_shards
from foretell.workloads.scripts.step_watch import StepWatch

REFUSED = 70  # the exit code of a process that was asked to be one of several


def install_distributed(watch: StepWatch) -> None:
    """Replace what needs several GPUs."""
    _replace_parallel(watch)
    if torch.distributed.is_available():
        _replace_group()
        call_after_import("torch.distributed.fsdp", lambda: _replace_sharding(watch))


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
    _replace_wrappers(watch, nn.parallel.DistributedDataParallel, nn.DataParallel)
    for name in ("register_comm_hook", "_set_static_graph", "_register_fused_optim"):
        replace(nn.parallel.DistributedDataParallel, name, lambda *_args, **_kwargs: None)


def _replace_sharding(watch: StepWatch) -> None:
    """A model that is divided over several GPUs runs as a whole."""
    replace_fully_shard(watch)
    wrapper = sys.modules["torch.distributed.fsdp"].FullyShardedDataParallel

    def clip(self: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        return nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

    replace(wrapper, "clip_grad_norm_", clip)
    _replace_wrappers(watch, wrapper, inner="_fsdp_wrapped_module", prepare=wrap_shards)


def _add_buckets(
    memory: ScriptMemory,
    module: nn.Module,
    *,
    bucket_cap_mb: float | None = None,
    gradient_as_bucket_view: bool = False,
    **_others: Any,
) -> None:
    """Copies of the gradients, in which they are exchanged; gradients that are views of them have no block."""
    learned = [each for each in module.parameters() if each.requires_grad]
    kind = MemoryKind.GRADIENTS if gradient_as_bucket_view else MemoryKind.COMMUNICATION
    numbers = memory.add_buckets(learned, kind=kind, limit_mib=bucket_cap_mb)
    if not gradient_as_bucket_view:
        return
    for parameter in learned:
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda each: memory.move_to_bucket(each.grad, numbers[0]) if each.grad is not None else None
        )


def _replace_wrappers(
    watch: StepWatch,
    *kinds: Any,
    inner: str = "module",
    prepare: Callable[[StepWatch, nn.Module, dict[str, Any]], None] = lambda *_: None,
) -> None:
    """Wrappers only pass calls on to their model."""

    def init(self: Any, module: nn.Module, device_ids: Any = None, *_args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        if watch.memory is not None and isinstance(self, nn.parallel.DistributedDataParallel):
            _add_buckets(watch.memory, module, **kwargs)
        watch.wrappers[type(self).__name__] = None
        prepare(watch, module, kwargs)
        setattr(self, inner, module)
        self.device_ids = device_ids
        self.require_backward_grad_sync = True
        self.static_graph = False
        self.training_state = None  # of FSDP, while it gathers parameters

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, inner)(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(_self: Any) -> Iterator[None]:
        yield

    for kind in kinds:
        replace(kind, "__init__", init)
        replace(kind, "forward", forward)
        replace(kind, "no_sync", no_sync)
