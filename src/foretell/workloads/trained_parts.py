"""Trains a part of a model: some parameters are frozen, or low-rank adapters are trained instead of all of them.

Adapters are computed as by the library peft: in single precision, also where the weights are in half precision.
"""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from foretell.core.errors import Mistake, SpecError
from foretell.workloads.lora_options import ALL_LINEAR, LoraOptions
from foretell.workloads.step_options import StepOptions

# https://github.com/huggingface/peft/blob/main/src/peft/utils/constants.py: queries and values, or both in one.
_USUAL = ("q_proj", "v_proj", "query", "value", "q", "v", "wq", "wv", "q_lin", "v_lin")
_JOINED = ("c_attn", "query_key_value", "Wqkv", "qkv_proj", "qkv", "in_proj")


def choose_trained_parts(model: nn.Module, options: StepOptions) -> Callable[[], None]:
    """Freeze what is not trained, and add adapters; returns a function that undoes both.

    Raises:
        SpecError: No parameter or layer has such a name, or nothing remains to be trained.
    """
    learned = [path for path, parameter in model.named_parameters() if parameter.requires_grad]
    frozen = list(_find_frozen(model, options))
    if options.lora is None and frozen and len({*map(id, frozen)}) == len(list(model.parameters())):
        raise _refuse("frozen", ", ".join(options.frozen), "some parameters that are trained")
    for parameter in frozen:
        parameter.requires_grad_(False)
    adapted = _add_adapters(model, options.lora) if options.lora is not None else []

    def restore() -> None:
        for parent, name, layer in adapted:
            setattr(parent, name, layer)
        for path in learned if frozen else ():
            model.get_parameter(path).requires_grad_(True)

    return restore


def _refuse(place: str, found: str, expected: str) -> SpecError:
    return SpecError("the training step", [Mistake(place=place, found=found, expected=expected)])


def _find_frozen(model: nn.Module, options: StepOptions) -> Iterator[nn.Parameter]:
    if options.lora is not None:
        yield from model.parameters()
        return
    named = dict(model.named_parameters())
    for pattern in options.frozen:
        found = [path for path in named if fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")]
        if not found:
            tops = sorted({path.split(".")[0] for path in named})
            expected = f"the name of a parameter or a layer; on top there are {', '.join(tops)}"
            raise _refuse("frozen", repr(pattern), expected)
        yield from (named[path] for path in found)


class LoraLayer(nn.Module):
    """A linear layer that stays as it is, and a product of low rank that learns."""

    def __init__(self, base: nn.Module, *, rank: int, sizes: tuple[int, int]) -> None:
        super().__init__()
        device = next(base.parameters()).device
        self.base_layer = base
        self.lora_A = nn.Linear(sizes[0], rank, bias=False, device=device, dtype=torch.float32)
        self.lora_B = nn.Linear(rank, sizes[1], bias=False, device=device, dtype=torch.float32)
        self.scaling = 1 / rank

    def forward(self, given: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The result of the layer and of its adapter."""
        result: torch.Tensor = self.base_layer(given, *args, **kwargs)
        added = self.lora_B(self.lora_A(given.to(self.lora_A.weight.dtype)))
        total: torch.Tensor = result + added * self.scaling
        return total.to(result.dtype)


def _add_adapters(model: nn.Module, lora: LoraOptions) -> list[tuple[nn.Module, str, nn.Module]]:
    """Give adapters to layers; returns the layers with the modules that had them, and their names there."""
    linear = [path for path, module in model.named_modules() if _find_sizes(module) is not None]
    targets = _find_targets(model, linear, lora)
    if not targets:
        names = ", ".join(sorted({path.rpartition(".")[2] for path in linear})) or "none"
        found = "+".join(lora.targets) or "no queries and values by their usual names"
        expected = f"{ALL_LINEAR}, or names of linear layers: {names}"
        raise _refuse("lora", found, expected)
    adapted = []
    for path in targets:
        parent_path, _, name = path.rpartition(".")
        parent, layer = model.get_submodule(parent_path), model.get_submodule(path)
        sizes = _find_sizes(layer)
        assert sizes is not None
        setattr(parent, name, LoraLayer(layer, rank=lora.rank, sizes=sizes))
        adapted.append((parent, name, layer))
    return adapted


def _find_targets(model: nn.Module, linear: list[str], lora: LoraOptions) -> list[str]:
    if lora.targets == (ALL_LINEAR,):
        head = getattr(model, "get_output_embeddings", lambda: None)()
        return [path for path in linear if model.get_submodule(path) is not head]
    wanted = [lora.targets] if lora.targets else [_USUAL, _JOINED]
    found = ([path for path in linear if path.rpartition(".")[2] in names] for names in wanted)
    return next(filter(None, found), [])


def _find_sizes(module: nn.Module) -> tuple[int, int] | None:
    """Features that a linear layer takes and gives."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):  # of GPT-2: a linear layer, transposed
        return module.weight.shape[0], module.nf  # type: ignore[return-value, index]
    return None
