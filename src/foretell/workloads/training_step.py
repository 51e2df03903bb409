"""The parts of a training step beside the model: its loss, its optimizer, its checkpoints."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from foretell.core.errors import Mistake, SpecError
from foretell.core.workload import Operator, StepPhase
from foretell.workloads.costs import cost
from foretell.workloads.recorder import CallMode, Recorder
from foretell.workloads.step_options import StepOptions

MOMENTUM = 0.9
_FUSED = {"sgd": ("_fused_sgd_", 3), "adam": ("_fused_adam_", 4), "adamw": ("_fused_adamw_", 4)}  # and their tensors
_UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"


def build_optimizer(parameters: Sequence[nn.Parameter], options: StepOptions) -> torch.optim.Optimizer:
    """The optimizer of these parameters, that goes through them one by one or all at once."""
    foreach = options.implementation == "foreach"
    if options.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.01, momentum=MOMENTUM, foreach=foreach)
    family = torch.optim.Adam if options.optimizer == "adam" else torch.optim.AdamW
    return family(parameters, lr=0.001, foreach=foreach)


def build_whole_updates(model: nn.Module, options: StepOptions) -> Iterator[Operator]:
    """What one kernel does to all parameters, which is not run but reckoned."""
    if options.precision == "fp16":
        yield _build_whole_update(model, _UNSCALE, tensors=1)
    if options.implementation == "fused":
        kind, tensors = _FUSED[options.optimizer]
        yield _build_whole_update(model, kind, tensors=tensors)


def _build_whole_update(model: nn.Module, kind: str, *, tensors: int) -> Operator:
    parameters = [each for each in model.parameters() if each.requires_grad]
    shapes = tuple(tuple(each.shape) for each in parameters)
    attributes = (("tensors", len(shapes)),)
    size = max((each.element_size() for each in parameters), default=4)
    flops, moved, kernels = cost(kind, StepPhase.UPDATE, shapes * tensors, (), attributes, itemsize=size)
    return Operator(
        kind=kind,
        phase=StepPhase.UPDATE,
        inputs=shapes * tensors,
        attributes=attributes,
        dtype=str(parameters[0].dtype).removeprefix("torch.") if parameters else "float32",
        flops=flops,
        bytes_moved=moved,
        parameters=sum(each.numel() for each in parameters),
        kernels=kernels,
    )


def compute_loss(out: Any, loss: str) -> torch.Tensor:
    """The number that is made small, from what the model gives back.

    Raises:
        SpecError: The model has no such loss.
    """
    own = find_own_loss(out)
    if own is not None and loss in ("auto", "own"):
        return own
    if loss == "own":
        raise _refuse_loss(loss, "a model that gives back its loss: one number, or something with 'loss'")
    result = find_result(out)
    if result is None or not result.is_floating_point():
        raise _refuse_loss(loss, "a model that gives back a tensor of numbers, or something that begins with one")
    if loss == "sum" or (loss == "auto" and result.dim() < 2):
        return result.sum()
    if loss == "mse":
        return functional.mse_loss(result, torch.empty_like(result))
    return _cross_entropy(result)


def _cross_entropy(result: torch.Tensor) -> torch.Tensor:
    """Over the second dimension; over the last one of three, which is a vocabulary's."""
    if result.dim() < 2:
        raise _refuse_loss("cross_entropy", f"scores of classes for each of a batch, not shape {tuple(result.shape)}")
    if result.dim() == 3:
        result = result.flatten(0, 1)
    target = torch.empty((result.shape[0], *result.shape[2:]), dtype=torch.int64, device=result.device)
    return functional.cross_entropy(result, target)


def _refuse_loss(loss: str, expected: str) -> SpecError:
    return SpecError("the training step", [Mistake(place="loss", found=loss, expected=expected)])


def find_own_loss(out: Any) -> torch.Tensor | None:
    """The loss that a model gives back itself."""
    found = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(found, torch.Tensor):
        return found
    return out if isinstance(out, torch.Tensor) and out.dim() == 0 else None


def find_result(out: Any) -> torch.Tensor | None:
    """The first tensor of what a model gives back."""
    if isinstance(out, torch.Tensor):
        return out
    values: Iterable[Any] = out.values() if isinstance(out, Mapping) else out if isinstance(out, Sequence) else ()
    return next((found for value in values if (found := find_result(value)) is not None), None)


def find_blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """What is repeated in a model, as its layers; its parts where nothing is."""
    found: list[tuple[str, nn.Module]] = []
    _collect_blocks(model, "", found)
    return found or [(name, child) for name, child in model.named_children() if any(True for _ in child.parameters())]


def _collect_blocks(module: nn.Module, path: str, found: list[tuple[str, nn.Module]]) -> None:
    children = [(f"{path}.{name}".lstrip("."), child) for name, child in module.named_children()]
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        classes = [type(child) for _, child in children]
        repeated = [
            pair for pair in children if classes.count(type(pair[1])) > 1 and any(True for _ in pair[1].children())
        ]
        found += repeated
        children = [pair for pair in children if pair not in repeated]
    for name, child in children:
        _collect_blocks(child, name, found)


@contextmanager
def checkpointed(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Keep only what goes into each block, and compute the block again in the backward phase."""
    blocks = find_blocks(model)
    own = [vars(block).get("forward") for _, block in blocks]
    for name, block in blocks:
        block.forward = _checkpoint(block.forward, name, recorder)
    try:
        yield
    finally:
        for (_, block), forward in zip(blocks, own, strict=True):
            del block.forward
            if forward is not None:
                block.forward = forward


def _checkpoint(forward: Callable[..., Any], name: str, recorder: Recorder) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if recorder.phase is StepPhase.FORWARD:
            return forward(*args, **kwargs)
        depth = len(recorder.layers)
        recorder.layers.append(name)
        try:
            with torch.device("meta"), CallMode(recorder):
                return forward(*args, **kwargs)
        finally:  # the framework leaves a block early once it has what it needs
            del recorder.layers[depth:]

    def checkpointed_forward(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, determinism_check="none", **kwargs)

    return checkpointed_forward
