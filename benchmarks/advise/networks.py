"""The networks of published trainings, and their steps, captured once and kept between runs."""

import hashlib
import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.capture import declare_torchvision
from benchmarks.distributed.model_captures import with_own_attention
from benchmarks.gpus.captures import cached
from foretell.core.workload import Workload
from foretell.workloads.capture import capture
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.step_options import InputSpec, StepOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network, what one batch of it is, and the options of its step whatever the precision."""

    build: Callable[[], nn.Module]
    describe: Callable[[int], tuple[InputSpec, ...]]  # a batch of so many examples
    options: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[Workload], Workload] = lambda workload: workload  # of what was captured


def read_network(name: str, *, batch: int, precision: str, **options: Any) -> Workload:
    """A step of one GPU's batch.

    Raises:
        LookupError: There is no network of that name.
    """
    family, network = _find_network(name)
    chosen = StepOptions(precision=precision, **{**network.options, **options})

    def make() -> Workload:
        declare_torchvision()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with HybridTensors():
                model = network.build()
            return network.change(capture(model, network.describe(batch), options=chosen, name=name))

    step = cached(f"advise {_hash_family(family)} {name} {batch} {chosen}", make)
    return with_own_attention(step) if name in _OWN_ATTENTION else step


# Trained with cuDNN's attention: llm.c with USE_CUDNN=1, as its script for this model says, and Transformer Engine.
_OWN_ATTENTION = ("gpt2-xl", "gpt3-175b fp8", "mixtral-8x7b")


def _find_network(name: str) -> tuple[str, Network]:
    known = _list_networks()
    if name not in known:
        raise LookupError(f"no network named {name!r}; known networks: {', '.join(sorted(known))}")
    return known[name]


def describe_images(size: int, channels: int = 3) -> Callable[[int], tuple[InputSpec, ...]]:
    """Batches of square images."""
    return lambda batch: (InputSpec(shape=(batch, channels, size, size)),)


def describe_tokens(tokens: int, words: int) -> Callable[[int], tuple[InputSpec, ...]]:
    """Batches of token ids."""
    return lambda batch: (InputSpec(shape=(batch, tokens), dtype="int64", high=words, name="ids"),)


# Of each family, the files with its code besides its own
_FAMILIES = {
    "networks_image": ("networks_unet",),
    "networks_language": ("networks_xl", "../distributed/decoders"),
    "networks_other": (),
    "networks_recipes": ("../distributed/decoders",),
}


@cache
def _list_networks() -> dict[str, tuple[str, Network]]:
    """Each network with its family."""
    found: dict[str, tuple[str, Network]] = {}
    for family in _FAMILIES:
        networks = importlib.import_module(f"benchmarks.advise.{family}").NETWORKS
        found |= {name: (family, network) for name, network in networks.items()}
    return found


@cache
def _hash_family(family: str) -> str:
    """Changes with the code of the networks."""
    digest = hashlib.sha256()
    for name in (family, *_FAMILIES[family]):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]
