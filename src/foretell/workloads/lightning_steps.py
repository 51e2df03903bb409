"""A LightningModule's own training step and optimizers, used instead of a loss and an optimizer of Foretell's."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from foretell.core.errors import WorkloadError

USED = (
    "{name} is a LightningModule: its training_step and configure_optimizers were used. Not used: --loss, --optimizer, "
    "callbacks, loggers, data loaders and options of the Trainer; pass --precision and --accumulation"
)


def is_lightning(model: nn.Module) -> bool:
    """Whether a model is a LightningModule."""
    return any(
        each.__name__ == "LightningModule" and each.__module__.split(".")[0] in ("lightning", "pytorch_lightning")
        for each in type(model).__mro__
    )


def compute_step_loss(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """The loss of the module's training step. Its batch is one input, a tuple of several, or a dictionary of names.

    Raises:
        WorkloadError: The step returns no loss, or the module optimizes by itself.
    """
    name = type(model).__name__
    if not getattr(model, "automatic_optimization", True):
        raise WorkloadError(
            f"{name} optimizes by itself (automatic_optimization = False), which needs its Trainer. "
            "Read the script that trains it: foretell workload show -- python train.py"
        )
    step: Any = model.training_step
    batch = dict(kwargs) if kwargs else args[0] if len(args) == 1 else tuple(args)
    parameters = list(inspect.signature(step).parameters)
    out = step(batch, 0) if len(parameters) > 1 else step(batch)
    loss = out.get("loss") if isinstance(out, Mapping) else out
    if not isinstance(loss, torch.Tensor):
        raise WorkloadError(f"{name}.training_step returned {type(out).__name__}; expected a loss")
    return loss


def build_own_optimizers(model: nn.Module, implementation: str) -> list[torch.optim.Optimizer]:
    """The optimizers of ``configure_optimizers``; those that leave it open are implemented as asked."""
    configure: Any = model.configure_optimizers
    found = list(_find_optimizers(configure()))
    for group in [group for each in found for group in each.param_groups]:
        if group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = implementation != "for-loop"
    return found


def _find_optimizers(value: Any) -> Sequence[torch.optim.Optimizer]:
    if isinstance(value, torch.optim.Optimizer):
        return [value]
    if isinstance(value, Mapping):
        return _find_optimizers(value.get("optimizer"))
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _find_optimizers(part)]
    return []
