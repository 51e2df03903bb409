"""Lets a model that FSDP divides over several GPUs run as a whole, in the precision in which FSDP would compute."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from foretell.workloads.scripts.cuda_answers import CUDA, replace
from foretell.workloads.scripts.step_watch import StepWatch


def replace_fully_shard(watch: StepWatch) -> None:
    """``fully_shard`` divides nothing: the module becomes one of its class, whose methods do nothing."""
    fsdp = sys.modules["torch.distributed.fsdp"]
    for name, method in vars(fsdp.FSDPModule).copy().items():
        if callable(method) and not name.startswith("_"):
            replace(fsdp.FSDPModule, name, _do_nothing)
    replace(fsdp.FSDPModule, "unshard", lambda *_args, **_kwargs: fsdp.UnshardHandle())
    del fsdp.FSDPModule._apply, fsdp.FSDPModule.__new__

    def shard(module: Any, *_args: Any, mp_policy: Any = None, **_kwargs: Any) -> Any:
        watch.wrappers["fully_shard"] = None
        for each in module if isinstance(module, (list, tuple)) else [module]:
            _place(each)
            if mp_policy is not None:
                compute_in(
                    watch,
                    each,
                    mp_policy.param_dtype,
                    inputs=mp_policy.cast_forward_inputs,
                    result=mp_policy.output_dtype,
                )
            each.__class__ = type(f"FSDP{type(each).__name__}", (fsdp.FSDPModule, type(each)), {})
        return module

    replace(fsdp, "fully_shard", shard)
    replace(fsdp, "register_fsdp_forward_method", _do_nothing)


def wrap_shards(watch: StepWatch, module: nn.Module, options: dict[str, Any]) -> None:
    """Prepare the module that a wrapper of FSDP contains, by the options of the wrapper."""
    _place(module)
    policy = options.get("mixed_precision")
    if policy is not None:
        compute_in(watch, module, policy.param_dtype, inputs=policy.cast_root_forward_inputs)


def compute_in(
    watch: StepWatch,
    module: nn.Module,
    dtype: torch.dtype | None,
    *,
    inputs: bool,
    result: torch.dtype | None = None,
) -> None:
    """Compute a module with its parameters, and its inputs, in a type of lower precision."""

    def begin(_module: nn.Module, args: Any, kwargs: Any) -> Any:
        watch.types.choose(module.parameters(), dtype)
        if dtype is not None:
            watch.mixed.add(dtype)
        return _cast((args, kwargs), dtype) if inputs and dtype is not None else None

    module.register_forward_pre_hook(begin, with_kwargs=True)
    if result is not None:
        module.register_forward_hook(lambda _module, _args, out: _cast(out, result))


def _cast(values: Any, dtype: torch.dtype) -> Any:
    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return tree_map(cast, values)


def _place(module: nn.Module) -> None:
    """Move what has data to the GPU."""
    move: Callable[[torch.Tensor], torch.Tensor] = lambda each: each if each.is_meta else each.to(CUDA)  # noqa: E731
    module._apply(move)  # type: ignore[no-untyped-call]


def _do_nothing(*_args: Any, **_kwargs: Any) -> None:
    return None
