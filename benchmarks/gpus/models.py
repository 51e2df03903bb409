"""Steps of the models of timm, torchvision and transformers, read from their code and kept between runs."""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.capture import declare_torchvision
from benchmarks.gpus.captures import cached
from foretell.core.workload import StepPhase, Workload
from foretell.workloads.capture import capture
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.step_options import InputSpec, StepOptions

_log = logging.getLogger(__name__)
_NOT_OURS = ("architectures", "model_type", "torch_dtype")  # of configurations: given otherwise
_REFUSED: dict[str, str] = {}  # models that cannot be read, and why


def read_timm(
    name: str, *, batch: int, size: int, options: StepOptions, deployed: bool = False, fast_norm: bool = False
) -> Workload | None:
    """The step of a model of timm; None if its code cannot be read.

    ``deployed``: with fused branches. ``fast_norm``: timm's own norms stay in half precision where autocast is on.
    """

    def build() -> nn.Module:
        declare_torchvision()
        import timm.layers
        import timm.utils

        kwargs: dict[str, Any] = {}
        if size != timm.get_pretrained_cfg(name, allow_unregistered=False).input_size[-1]:
            kwargs["img_size"] = size
        with HybridTensors():
            timm.layers.set_fast_norm(fast_norm)
            try:
                model: nn.Module = timm.create_model(name, **kwargs)
            except TypeError:  # a network that takes images of any size
                model = timm.create_model(name)
            finally:
                timm.layers.set_fast_norm(False)
            return timm.utils.reparameterize_model(model.eval()) if deployed else model

    what = f"timm {name}{' deployed' if deployed else ''}{' fast norm' if fast_norm else ''}"
    return _read(what, build, (InputSpec(shape=(batch, 3, size, size)),), options)


def read_torchvision(name: str, *, batch: int, size: int, options: StepOptions) -> Workload | None:
    """The step of a model of torchvision; None if its code cannot be read."""
    inputs = (InputSpec(shape=(batch, 3, size, size)),)
    return _read(f"torchvision {name}", lambda: build_torchvision(name), inputs, options)


def build_torchvision(name: str) -> nn.Module:
    """A model of torchvision without data."""
    declare_torchvision()
    import torchvision

    with HybridTensors():
        model: nn.Module = getattr(torchvision.models, name)()
    return model


def read_transformer(
    path: Path,
    architecture: str,
    inputs: tuple[InputSpec, ...],
    *,
    loss: str,
    options: StepOptions,
    change: Callable[[nn.Module], None] = lambda _: None,
) -> Workload | None:
    """The step of a configuration, as an architecture of transformers; None if its code cannot be read.

    ``loss`` is the attribute of the model's output that the loss is computed from. ``change`` makes the model that of
    another version.
    """
    values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in values.items() if name not in _NOT_OURS}
    what = f"transformers {architecture} {json.dumps(kept, sort_keys=True)}"

    def build() -> nn.Module:
        model = _build_transformer(str(values["model_type"]), kept, architecture)
        change(model)
        return _OneOutput(model, loss)

    return _read(what, build, inputs, options)


def _build_transformer(kind: str, values: Mapping[str, Any], architecture: str) -> nn.Module:
    declare_torchvision()
    import transformers

    config = transformers.AutoConfig.for_model(kind, **values)
    config.use_cache = False
    with HybridTensors():
        model: nn.Module = getattr(transformers, architecture)._from_config(config, attn_implementation="eager")
    return model


class _OneOutput(nn.Module):
    """A model that returns one of its outputs."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.model(*args, **kwargs), self.name)


def drop_updates(workload: Workload) -> Workload:
    """A step without the update of its parameters."""
    kept = [place for place, each in enumerate(workload.operators) if each.phase is not StepPhase.UPDATE]
    return replace(
        workload,
        operators=tuple(workload.operators[place] for place in kept),
        layers=tuple(workload.layers[place] for place in kept),
        views=tuple(workload.views[place] for place in kept),
        sources=(),
        gradients=(),
    )


def _read(
    what: str,
    build: Callable[[], nn.Module],
    inputs: tuple[InputSpec, ...],
    options: StepOptions,
    mode: str = "training",
) -> Workload | None:
    key = f"{what} {' '.join(map(str, inputs))} {_write(options)}"
    if key in _REFUSED:
        return None

    def make() -> Workload:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return capture(build(), inputs, options=options, name=what)

    try:
        return cached(key, make)
    except Exception as exc:  # whatever a model's code raises
        _REFUSED[key] = f"{type(exc).__name__}: {exc}"
        print(f"{key[:60]}: {_REFUSED[key][:200]}", file=sys.stderr)
        return None


def _write(options: StepOptions) -> str:
    """The options that differ from the usual ones."""
    usual = asdict(StepOptions())
    return " ".join(f"{name}={value}" for name, value in asdict(options).items() if value != usual[name])
