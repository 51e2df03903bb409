"""Steps of the models of this benchmark, captured once and kept between runs."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.gpus.captures import cached
from foretell.core.workload import StepPhase, Workload
from foretell.steps.kernels.launch_times import HOST
from foretell.workloads.capture import capture
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.step_options import InputSpec, StepOptions

_MODELS = ("megatron_gpt", "decoders", "mixtures", "eight_bits", "mpt")


def read_language_model(
    name: str,
    build: Callable[[], nn.Module],
    *,
    batch: int,
    tokens: int,
    words: int,
    options: StepOptions,
    change: Callable[[Workload], Workload] = lambda workload: workload,
) -> Workload:
    """A step of a model that takes token ids and returns its loss; ``change`` is applied before it is kept."""

    def make() -> Workload:
        with HybridTensors():
            model = build()
        given = (InputSpec(shape=(batch, tokens), dtype="int64", high=words, name="ids"),)
        return change(capture(model, given, options=options, name=name))

    return cached(f"distributed {_hash_models()} {name} {batch} {tokens} {options}", make)


def read_megatron(*args: Any, **named: Any) -> Workload:
    """The same of a model in Megatron-LM, whose operations are Python functions of its own."""
    workload = read_language_model(*args, **named)
    return replace(workload, settings={**workload.settings, HOST: "functions"})


def with_own_attention(workload: Workload) -> Workload:
    """A step whose attention runs in kernels for the device, as Transformer Engine's do (cuDNN)."""
    return replace(workload, settings={**workload.settings, "attention": "cudnn"})


@cache
def _hash_models() -> str:
    """Changes with the code of the models."""
    digest = hashlib.sha256()
    for name in _MODELS:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


def drop_update(workload: Workload) -> Workload:
    """A step without the update of its parameters, whose gradients are kept."""
    last = next(
        (place for place, each in enumerate(workload.operators) if each.phase is StepPhase.UPDATE),
        len(workload.operators),
    )
    return replace(
        workload,
        operators=workload.operators[:last],
        layers=workload.layers[:last],
        views=workload.views[:last],
        sources=workload.sources[:last],
    )
