"""The fitted models of kernels that ship with the package."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any, TypeAlias

from foretell.core.model_files import load_model
from foretell.steps.kernels import KERNEL_MODELS
from foretell.steps.kernels._base import KernelTimeModel
from foretell.steps.kernels.plain_times import PlainTimeModel

KernelModels: TypeAlias = Mapping[str, KernelTimeModel[Any]]

_REMEDY = "install Foretell again"


def find_weights(name: str) -> Path:
    """The file of a fitted model."""
    return Path(str(resources.files("foretell.steps") / "weights" / "kernels" / f"{name}.safetensors"))


@cache
def load_kernel_models() -> KernelModels:
    """The model of each kind of kernel; by figures alone where none ships."""
    return {name: _load(name) for name in KERNEL_MODELS}


def _load(name: str) -> KernelTimeModel[Any]:
    path = find_weights(name)
    if not path.exists():
        return PlainTimeModel()
    module, _, class_name = KERNEL_MODELS[name].partition(":")
    model, _facts = load_model(path, [getattr(import_module(module), class_name)], remedy=_REMEDY)
    found: KernelTimeModel[Any] = model
    return found
