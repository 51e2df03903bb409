"""The optimizers of PyTorch by their names, and Adam with states in eight bits."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from foretell.core.errors import MissingExtraError
from foretell.workloads.known_tensors import has_data
from foretell.workloads.step_options import EIGHT_BITS, FUSED, StepOptions

MOMENTUM = 0.9
# https://github.com/bitsandbytes-foundation/bitsandbytes/blob/main/bitsandbytes/optim/optimizer.py
_SMALL = 4096  # elements, below which states stay in single precision
_BLOCK = 256  # elements with one scale
_LEVELS = 256  # of a number in eight bits, which all tensors share


def build_optimizer(
    parameters: Sequence[nn.Parameter], options: StepOptions, *, learning_rate: float = 0.001
) -> torch.optim.Optimizer:
    """The optimizer of these parameters.

    Raises:
        MissingExtraError: States in eight bits are asked for on a real device, and bitsandbytes is not installed.
    """
    if options.optimizer == EIGHT_BITS:
        return _build_eight_bits(parameters, learning_rate)
    given: dict[str, Any] = {"lr": learning_rate, "foreach": options.implementation == "foreach"}
    if options.optimizer in FUSED:
        given["fused"] = options.implementation == "fused"
    if options.optimizer == "sgd":
        given["momentum"] = MOMENTUM
    return _FAMILIES[options.optimizer](parameters, **given)


_FAMILIES: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adafactor": torch.optim.Adafactor,
}


def _build_eight_bits(parameters: Sequence[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    if not any(map(has_data, parameters)):
        return EightBitStates(parameters, {"lr": learning_rate})
    try:
        library = importlib.import_module("bitsandbytes.optim")
    except ImportError as exc:
        raise MissingExtraError(f"optimizer {EIGHT_BITS!r} on a real device needs: pip install bitsandbytes") from exc
    found: torch.optim.Optimizer = library.AdamW8bit(parameters, lr=learning_rate)
    return found


class EightBitStates(torch.optim.Optimizer):
    """Allocates what bitsandbytes' AdamW8bit allocates, for parameters without data; its kernel needs nothing else."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters, each by one kernel."""
        for parameter in (each for group in self.param_groups for each in group["params"]):
            if parameter.grad is None:
                continue
            if not self.state[parameter]:
                self.state[parameter] = dict(self._build_states(parameter))
            parameter.add_(parameter.grad)

    def _build_states(self, parameter: torch.Tensor) -> Any:
        for number in (1, 2):
            if parameter.numel() < _SMALL:
                yield f"state{number}", torch.zeros_like(parameter, dtype=torch.float32)
                continue
            yield f"state{number}", torch.zeros_like(parameter, dtype=torch.uint8)
            blocks = -(-parameter.numel() // _BLOCK)
            yield f"absmax{number}", torch.zeros(blocks, dtype=torch.float32, device=parameter.device)
            yield f"qmap{number}", self._find_levels(number, parameter.device)

    def _find_levels(self, number: int, device: torch.device) -> torch.Tensor:
        levels: dict[int, torch.Tensor] = self.__dict__.setdefault("_levels", {})
        if number not in levels:
            levels[number] = torch.zeros(_LEVELS, dtype=torch.float32, device=device)
        return levels[number]
