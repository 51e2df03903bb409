"""The methods of predicting a training step that are compared."""

from foretell.core.devices import get_device
from foretell.steps import METHODS, get_method
from foretell.steps._base import StepModel

_CPU_ONLY = frozenset({"serial"})  # the traces are of GPUs


def list_methods() -> list[str]:
    """The methods that can predict a GPU."""
    return [name for name in METHODS if name not in _CPU_ONLY]


def choose_methods(text: str | None) -> list[str]:
    """The requested methods; by default all.

    Raises:
        ValueError: There is no such method.
    """
    known = list_methods()
    asked = [name.strip() for name in text.split(",")] if text else known
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise ValueError(f"no method named {unknown[0]!r}; known methods: {', '.join(known)}")
    return asked


def make_model(name: str, gpu: str) -> StepModel:
    """A model of a GPU that is not fitted yet.

    Raises:
        NotFoundError: There is no such method, or no figures of the GPU.
    """
    return get_method(name).build(get_device(gpu))
