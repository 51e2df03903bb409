"""The names of modules and parameters of a script, which may have several models."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

_MARK = "\0"  # between the number of a model and the path in it


class ModulePaths:
    """Paths of modules and parameters. Those of several models start with the name of their model's class."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}  # of parameters, by identity
        self.roots: list[nn.Module] = []  # models that were called, in order
        self._paths: dict[int, str] = {}
        self._hooked: set[int] = set()

    def add(self, module: nn.Module, on_gradient: Callable[[Any], None]) -> list[nn.Parameter]:
        """Add a model that is called; returns its parameters."""
        parameters = list(module.parameters())
        if parameters and id(module) not in self._paths:
            number = len(self.roots)
            self.roots.append(module)
            for path, part in module.named_modules():
                self._paths.setdefault(id(part), f"{number}{_MARK}{path}")
            for path, parameter in module.named_parameters():
                self.names.setdefault(id(parameter), f"{number}{_MARK}{path}")
        for parameter in parameters:
            if id(parameter) not in self._hooked and _takes_gradients(parameter):
                self._hooked.add(id(parameter))
                parameter.register_post_accumulate_grad_hook(on_gradient)  # type: ignore[no-untyped-call]
        return parameters

    def find(self, module: nn.Module, default: str) -> str:
        """The path of a module; the default for one that belongs to no model."""
        return self._paths.get(id(module), default)

    def describe(self, path: str) -> str:
        """A path as users read it."""
        number, mark, inner = path.partition(_MARK)
        if not mark:
            return path
        if len(self.roots) == 1:
            return inner
        return f"{self._name(int(number))}.{inner}".rstrip(".")

    def split(self, path: str) -> tuple[str, str]:
        """The name of a parameter, and the path of its module."""
        number, mark, inner = path.rpartition(_MARK)
        layer, _, name = inner.rpartition(".")
        return name, f"{number}{mark}{layer}"

    def _name(self, number: int) -> str:
        name = type(self.roots[number]).__name__
        same = [place for place, root in enumerate(self.roots) if type(root).__name__ == name]
        return name if len(same) == 1 else f"{name}{same.index(number) + 1}"

    def count_parameters(self) -> int:
        """Elements of all parameters of the models."""
        known = {id(each): each.numel() for root in self.roots for each in root.parameters()}
        return sum(known.values())


def _takes_gradients(parameter: Any) -> bool:
    """Whether a parameter is trained, and has the shape that the first call of a lazy module gives it."""
    return bool(parameter.requires_grad and parameter.is_leaf and not is_lazy(parameter))


def is_wrapper(module: nn.Module) -> bool:
    """Whether a module only passes calls on to the model it contains."""
    return type(module).__name__ in ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
