"""The memory of steps of the models of timm, read from their code and kept between runs."""

import random
import sys
from collections.abc import Iterable
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
_USUAL_SIZE = 224
_SEED = 0
_ATTENTION = "scaled_dot_product_attention"
_REFUSED: dict[str, str] = {}  # models that cannot be read, and why


def read_timm(name: str, *, size: int, precision: str, fused: bool = True) -> BatchTraces | None:
    """The memory of a training step with SGD at any batch; None if the model's code cannot be read.

    Without ``fused``, attention keeps its weights for the backward phase, as before PyTorch 2.
    """
    key = f"timm {name} {PRIME} {size} {precision} sgd{'' if fused else ' unfused'}"
    if key in _REFUSED:
        return None
    options = StepOptions(precision=precision, loss="cross_entropy")
    inputs = (InputSpec(shape=(PRIME, 3, size, size)),)
    try:
        trace = cached(
            key, lambda: capture_memory(build_timm(name, size, fused=fused), inputs, options=options, name=name)
        )
    except Exception as exc:  # whatever a model's code raises
        _REFUSED[key] = f"{type(exc).__name__}: {exc}"
        print(f"{key}: {_REFUSED[key][:200]}", file=sys.stderr)
        return None
    return derive_batches(trace)


def derive_batches(trace: MemoryTrace) -> BatchTraces:
    """A step with a batch that is prime, and the same without the blocks that grow with it.

    A block of activations grows if its size is a multiple of the batch; those of attention also are padded at their
    ends. This takes half the time of two captures.
    """
    padded = [place for place, (operator, _) in enumerate(trace.owner_names) if operator == _ATTENTION]
    grows = (trace.sizes % trace.batch == 0) | np.isin(trace.owners, padded)
    grows &= ~np.isin(trace.kinds, _OF_THE_MODEL)
    return BatchTraces(replace(trace, batch=1, sizes=np.where(grows, trace.sizes // trace.batch, trace.sizes)), trace)


def draw(names: Iterable[str], count: int) -> list[str]:
    """Models at random, always the same ones."""
    found = sorted(names)
    random.Random(_SEED).shuffle(found)
    return found[:count]


def is_known(name: str) -> bool:
    """Whether timm still has the model."""
    declare_torchvision()
    import timm

    return bool(timm.is_model(name))


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
    config = timm.get_pretrained_cfg(name)
    return int(config.input_size[-1]) if config is not None else _USUAL_SIZE


def build_timm(name: str, size: int, *, fused: bool = True) -> nn.Module:
    """A model of timm without data, for images of this size."""
    declare_torchvision()
    import timm.layers

    kwargs: dict[str, Any] = {}
    if size != find_image_size(name):
        kwargs["img_size"] = size
    timm.layers.set_fused_attn(fused)
    with HybridTensors():
        try:
            model: nn.Module = timm.create_model(name, **kwargs)
        except TypeError:  # a network that takes images of any size
            model = timm.create_model(name)
    return model
