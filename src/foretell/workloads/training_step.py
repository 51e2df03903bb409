"""The parts of a training step: loss, optimizer, checkpointing, mixed precision; and a real step on a device."""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from foretell.core.errors import Mistake, SpecError
from foretell.core.workload import Operator, Shape, StepPhase
from foretell.workloads.example_inputs import arrange_inputs, draw_integers
from foretell.workloads.operator_costs import cost
from foretell.workloads.optimizers import build_optimizer
from foretell.workloads.step_options import CONSTANT, InputSpec, StepOptions, find_every
from foretell.workloads.step_passes import UPDATES
from foretell.workloads.trained_parts import choose_trained_parts

MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}  # with float32
PURE = {"pure-bf16": torch.bfloat16, "pure-fp16": torch.float16}
_aten = torch.ops.aten
_KEPT = (  # by selective checkpointing: what costs most to compute again
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
)
_UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"


# Optimizer


def build_fused_updates(model: nn.Module, options: StepOptions) -> Iterator[Operator]:
    """Updates of all parameters in one kernel. They are not run; their cost is computed."""
    if options.precision == "fp16":
        yield _build_fused_update(model, _UNSCALE, tensors=1)
    if options.implementation == "fused":
        kind, tensors = UPDATES[options.optimizer]
        yield _build_fused_update(model, kind, tensors=tensors)


def _build_fused_update(model: nn.Module, kind: str, *, tensors: int) -> Operator:
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


# Loss


def compute_loss(
    out: Any, loss: str, *, build_target: "Callable[[Tensor, Shape, int], Tensor] | None" = None
) -> torch.Tensor:
    """The loss of what the model returned; targets are empty tensors unless ``build_target`` makes them.

    Raises:
        SpecError: The model has no such loss.
    """
    build_target = build_target or _build_empty_target
    own = _find_own_loss(out)
    if own is not None and loss in ("auto", "own"):
        return own
    if loss == "own":
        raise _refuse_loss(loss, "a model that returns its loss: a number, or an object with an attribute 'loss'")
    result = _find_result(out)
    if result is None or not result.is_floating_point():
        raise _refuse_loss(loss, "a model that returns a floating-point tensor, or a sequence that starts with one")
    if loss == "sum" or (loss == "auto" and result.dim() < 2):
        return result.sum()
    if loss == "mse":
        return functional.mse_loss(result, build_target(result, tuple(result.shape), 0))
    if result.dim() < 2:
        raise _refuse_loss("cross_entropy", f"class scores for each example, not shape {tuple(result.shape)}")
    if result.dim() == 3:  # batch, sequence, vocabulary
        result = result.flatten(0, 1)
    shape = (result.shape[0], *result.shape[2:])
    return functional.cross_entropy(result, build_target(result, shape, result.shape[1]))


def _build_empty_target(result: Tensor, shape: Shape, classes: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int64, device=result.device) if classes else torch.empty_like(result)


def _refuse_loss(loss: str, expected: str) -> SpecError:
    return SpecError("the training step", [Mistake(place="loss", found=loss, expected=expected)])


def _find_own_loss(out: Any) -> torch.Tensor | None:
    """The loss that the model itself returns: alone, by that name, as the only number among others, or as parts."""
    found = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(found, torch.Tensor):
        return found
    if isinstance(out, torch.Tensor):
        return out if out.dim() == 0 else None
    values = list(out.values() if isinstance(out, Mapping) else out if isinstance(out, Sequence) else ())
    numbers = [each for each in values if isinstance(each, Tensor) and each.dim() == 0 and each.is_floating_point()]
    if isinstance(out, Mapping) and numbers and len(numbers) == len(values):  # torchvision's detectors
        return torch.stack(numbers).sum()
    return numbers[0] if len(numbers) == 1 else None


def _find_result(out: Any) -> torch.Tensor | None:
    """The first tensor that the model returned."""
    if isinstance(out, torch.Tensor):
        return out
    values: Iterable[Any] = out.values() if isinstance(out, Mapping) else out if isinstance(out, Sequence) else ()
    return next((found for value in values if (found := _find_result(value)) is not None), None)


# Activation checkpointing


@contextmanager
def checkpointed(
    model: nn.Module, on_recompute: Callable[[str], AbstractContextManager[Any]], *, recompute: str = "all"
) -> Iterator[None]:
    """Compute repeated blocks again in the backward phase, within ``on_recompute(name of the block)``.

    ``recompute`` is that of the options of a step.
    """
    blocks = find_blocks(model)[:: find_every(recompute)]
    contexts = (
        {"context_fn": partial(create_selective_checkpoint_contexts, list(_KEPT))} if recompute == "cheap" else {}
    )
    own = [vars(block).get("forward") for _, block in blocks]
    for name, block in blocks:
        block.forward = _Checkpoint(block.forward, name, on_recompute, contexts)
    try:
        with _without_cache(model):
            yield
    finally:
        for (_, block), forward in zip(blocks, own, strict=True):
            del block.forward
            if forward is not None:
                block.forward = forward


@contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Without keys and values that a block would keep a second time; so do Hugging Face's models while they learn."""
    config: Any = getattr(model, "config", None)
    cached = getattr(config, "use_cache", None)
    if cached:
        config.use_cache = False
    try:
        yield
    finally:
        if cached:
            config.use_cache = cached


class _Checkpoint:
    def __init__(
        self,
        forward: Callable[..., Any],
        name: str,
        on_recompute: Callable[[str], AbstractContextManager[Any]],
        contexts: Mapping[str, Any],
    ) -> None:
        self._forward = forward
        self._contexts = contexts
        self._name = name
        self._on_recompute = on_recompute

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first = True

        def run(*given: Any, **named: Any) -> Any:
            nonlocal first
            if first:
                first = False
                return self._forward(*given, **named)
            with self._on_recompute(self._name):
                return self._forward(*given, **named)

        return checkpoint(
            run,
            *args,
            use_reentrant=False,
            preserve_rng_state=False,
            determinism_check="none",
            **self._contexts,
            **kwargs,
        )


def find_blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The repeated blocks of a model, such as its layers; its direct children if nothing repeats."""
    found: list[tuple[str, nn.Module]] = []
    _collect_blocks(model, "", found)
    return found or [(name, child) for name, child in model.named_children() if any(True for _ in child.parameters())]


_HEADS = (("num_attention_heads", "num_heads", "n_head", "n_heads", "nhead"), ("num_key_value_heads", "n_kv_heads"))


def find_heads(model: nn.Module) -> tuple[int, ...]:
    """The numbers of heads of queries, and of keys if there are fewer; nothing if the model states none."""
    holders = [*(module.config for module in model.modules() if hasattr(module, "config")), *model.modules()]
    found = [
        next(
            (value for holder in holders for name in names if isinstance(value := getattr(holder, name, None), int)), 0
        )
        for names in _HEADS
    ]
    return tuple(each for each in found if each)


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


# A real step


def find_device() -> torch.device:
    """The GPU of this machine, or its CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def copy_without_data(model: nn.Module) -> nn.Module:
    """A copy of the model on meta tensors, for the capture, which keeps the model it is given."""
    own = [*model.parameters(), *model.buffers()]
    memo: dict[int, Any] = {id(each): _strip(each) for each in own}
    return copy.deepcopy(model, memo)


def _strip(tensor: Tensor) -> Tensor:
    bare = torch.empty_like(tensor, device="meta")
    return nn.Parameter(bare, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else bare


class RealStep:
    """A model with inputs, targets and optimizer on a device. The same seed gives the same numbers.

    In mode inference it has the forward phase only.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[InputSpec],
        options: StepOptions,
        *,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.device = device
        self.options = options
        self._pure = PURE.get(options.precision)
        self._random = torch.Generator(device="cpu").manual_seed(seed)
        self._learns = options.mode == "training"
        self.model = model.to(device, self._pure).train(self._learns)
        choose_trained_parts(self.model, options)
        self._args, self._kwargs = self._build_inputs(inputs)
        trained = [each for each in self.model.parameters() if each.requires_grad]
        self._optimizer = build_optimizer(trained, options, learning_rate=1e-6) if self._learns else None
        self._target: Tensor | None = None

    def zero(self) -> None:
        """Reset the gradients."""
        if self._optimizer is not None:
            self._optimizer.zero_grad()

    def forward(self) -> Tensor:
        """The loss of one batch; in mode inference, no loss is computed."""
        if not self._learns:
            with self._mixed(), torch.no_grad():
                self.model(*self._args, **self._kwargs)
            return torch.zeros(())
        with self._mixed():
            loss = compute_loss(
                self.model(*self._args, **self._kwargs), self.options.loss, build_target=self._find_target
            )
        return loss / self.options.accumulation if self.options.accumulation > 1 else loss

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        if self._learns:
            torch.autograd.backward(loss)

    def update(self) -> None:
        """Update the parameters."""
        if self._optimizer is not None:
            self._optimizer.step()

    def run(self) -> None:
        """Run the whole step."""
        self.zero()
        for _batch in range(self.options.accumulation):
            self.backward(self.forward())
        self.update()

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _mixed(self) -> AbstractContextManager[Any]:
        kind = MIXED.get(self.options.precision)
        return nullcontext() if kind is None else torch.autocast(self.device.type, dtype=kind)

    def _build_inputs(self, inputs: Sequence[InputSpec]) -> tuple[list[Any], dict[str, Any]]:
        return arrange_inputs(inputs, self._draw, self.model.forward)

    def _draw(self, given: InputSpec) -> Any:
        if given.dtype == CONSTANT:
            return given.value
        dtype: torch.dtype = getattr(torch, given.dtype)
        if not dtype.is_floating_point:
            return draw_integers(given, self._random).to(self.device)
        if dtype is torch.float32 and self._pure is not None:
            dtype = self._pure
        return torch.randn(given.shape, generator=self._random).to(self.device, dtype)

    def _find_target(self, _result: Tensor, shape: Shape, classes: int) -> Tensor:
        """Random targets, the same in each step."""
        if self._target is None:
            if classes:
                target = torch.randint(0, classes, shape, generator=self._random)
            else:
                target = torch.randn(shape, generator=self._random, dtype=torch.float32).to(self._pure)
            self._target = target.to(self.device)
        return self._target


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Ignore the warnings of a model's own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
