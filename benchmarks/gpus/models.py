"""Steps of the models of timm, torchvision and transformers, read from their code and kept between runs."""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.capture import declare_torchvision
from benchmarks.gpus.captures import cached
from foretell.core.workload import StepPhase, Workload
from foretell.workloads.capture import _build, _empty, _layers_tracked, build_tensors, capture
from foretell.workloads.recorder import CallMode, KernelMode, Recorder
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.tensor_notes import KnownValues
from foretell.workloads.training_step import MIXED, Casts

_log = logging.getLogger(__name__)
_REFUSED: dict[str, str] = {}  # models that cannot be read, and why


def read_timm(name: str, *, batch: int, size: int, options: StepOptions, mode: str = "training") -> Workload | None:
    """The step of a model of timm; None if its code cannot be read."""

    def build() -> nn.Module:
        declare_torchvision()
        import timm

        kwargs: dict[str, Any] = {}
        if size != timm.get_pretrained_cfg(name, allow_unregistered=False).input_size[-1]:
            kwargs["img_size"] = size
        with torch.device("meta"), KnownValues():
            try:
                model: nn.Module = timm.create_model(name, **kwargs)
            except TypeError:  # a network that takes images of any size
                model = timm.create_model(name)
        return model

    return _read(f"timm {name}", build, (InputSpec(shape=(batch, 3, size, size)),), options, mode)


def read_torchvision(
    name: str, *, batch: int, size: int, options: StepOptions, mode: str = "training"
) -> Workload | None:
    """The step of a model of torchvision; None if its code cannot be read."""

    def build() -> nn.Module:
        declare_torchvision()
        import torchvision

        with torch.device("meta"), KnownValues():
            model: nn.Module = getattr(torchvision.models, name)()
        return model

    return _read(f"torchvision {name}", build, (InputSpec(shape=(batch, 3, size, size)),), options, mode)


def read_transformer(
    path: Path, *, batch: int, length: int, options: StepOptions, mode: str = "training"
) -> Workload | None:
    """The step of a language model of a configuration as transformers has them; None if its code cannot be read."""
    values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))

    def build() -> nn.Module:
        return build_transformer(values)

    ids = InputSpec(shape=(batch, length), dtype="int64", high=int(values["vocab_size"]), name="input_ids")
    given = (ids,) if options.loss == "sum" else (ids, InputSpec(shape=ids.shape, dtype="int64", name="labels"))
    return _read(f"transformers {path.stem} {json.dumps(values, sort_keys=True)}", build, given, options, mode)


def build_transformer(values: Mapping[str, Any]) -> nn.Module:
    """A model of a configuration, without data."""
    declare_torchvision()
    import transformers

    config = transformers.AutoConfig.for_model(values["model_type"], **values)
    config.use_cache = False
    family = getattr(transformers, values["architectures"][0])
    with torch.device("meta"), KnownValues():
        model: nn.Module = family._from_config(config, attn_implementation="eager")
    return model


def _read(
    what: str,
    build: Callable[[], nn.Module],
    inputs: tuple[InputSpec, ...],
    options: StepOptions,
    mode: str = "training",
) -> Workload | None:
    key = f"{what} {' '.join(map(str, inputs))} {options} {mode}"
    if key in _REFUSED:
        return None

    def make() -> Workload:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = capture_forward if mode == "inference" else capture
            return read(build(), inputs, options=options, name=what)

    try:
        return cached(key, make)
    except Exception as exc:  # whatever a model's code raises
        _REFUSED[key] = f"{type(exc).__name__}: {exc}"
        print(f"{key}: {_REFUSED[key][:200]}", file=sys.stderr)
        return None


def capture_forward(model: nn.Module, inputs: Sequence[InputSpec], *, options: StepOptions, name: str) -> Workload:
    """The operators of a model that is applied, not trained."""
    _empty(model)
    model.eval()
    mixed = MIXED.get(options.precision)
    recorder = Recorder(
        {id(each): path for path, each in model.named_parameters()}, Casts(mixed) if mixed is not None else None
    )
    recorder.phase = StepPhase.FORWARD
    args, kwargs = build_tensors(inputs)
    tracked = _layers_tracked(model, recorder)
    with tracked, torch.no_grad(), KernelMode(recorder), torch.device("meta"), CallMode(recorder):
        model(*args, **kwargs)
    operators, layers, views = _build(recorder)
    return Workload(
        name=name,
        operators=tuple(operators),
        layers=tuple(layers),
        views=tuple(views),
        batch=inputs[0].shape[0],
        settings={**options.settings, "mode": "inference"},
        parameters=sum(each.numel() for each in model.parameters()),
    )
