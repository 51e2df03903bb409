"""The memory of steps of the models of timm, read from their code and kept between runs."""

import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from benchmarks.capture import declare_torchvision
from benchmarks.memory.captures import cached
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.memory.batch_sizes import BatchTraces
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec, StepOptions

PRIME = 251  # a batch: few sizes that do not depend on it are multiples of it
_OF_THE_MODEL = (MemoryKind.WEIGHTS, MemoryKind.BUFFERS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER, MemoryKind.CASTS)
_REFUSED: dict[str, str] = {}  # models that cannot be read, and why


def read_timm(name: str, *, size: int, precision: str) -> BatchTraces | None:
    """The memory of a training step with SGD at any batch; None if the model's code cannot be read."""
    key = f"timm {name} {PRIME} {size} {precision} sgd"
    if key in _REFUSED:
        return None
    options = StepOptions(precision=precision, loss="cross_entropy")
    inputs = (InputSpec(shape=(PRIME, 3, size, size)),)
    try:
        trace = cached(key, lambda: capture_memory(_build(name, size), inputs, options=options, name=name))
    except Exception as exc:  # whatever a model's code raises
        _REFUSED[key] = f"{type(exc).__name__}: {exc}"
        print(f"{key}: {_REFUSED[key][:200]}", file=sys.stderr)
        return None
    return derive_batches(trace)


def derive_batches(trace: MemoryTrace) -> BatchTraces:
    """A step with a batch that is prime, and the same without the blocks that grow with it.

    A block of activations grows if its size is a multiple of the batch. This takes half the time of two captures.
    """
    grows = (trace.sizes % trace.batch == 0) & ~np.isin(trace.kinds, _OF_THE_MODEL)
    return BatchTraces(replace(trace, batch=1, sizes=np.where(grows, trace.sizes // trace.batch, trace.sizes)), trace)


@cache
def find_family(name: str) -> str:
    """The module of a model of timm."""
    declare_torchvision()
    from timm.models import _registry

    return str(_registry._model_to_module[name])


@cache
def find_image_size(name: str) -> int | None:
    """Of the model's configuration; None if timm has no such model."""
    declare_torchvision()
    import timm

    if not timm.is_model(name):
        return None
    config = timm.get_pretrained_cfg(name, allow_unregistered=False)
    return int(config.input_size[-1]) if config is not None else 224


def _build(name: str, size: int) -> nn.Module:
    declare_torchvision()
    import timm

    kwargs: dict[str, Any] = {}
    if size != find_image_size(name):
        kwargs["img_size"] = size
    with HybridTensors():
        try:
            model: nn.Module = timm.create_model(name, **kwargs)
        except TypeError:  # a network that takes images of any size
            model = timm.create_model(name)
    return model
