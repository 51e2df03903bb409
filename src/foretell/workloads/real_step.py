"""A training step that really runs: weights, inputs and targets with data, on the device at hand."""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.core.workload import Shape
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.training_step import MOMENTUM, find_blocks, find_own_loss, find_result

_MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16}
_PURE = {"pure-bf16": torch.bfloat16, "pure-fp16": torch.float16}


def find_device() -> torch.device:
    """The accelerator at hand; the host where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def build_shadow(model: nn.Module) -> nn.Module:
    """The same model without data, for the capture, which keeps what it is given."""
    own = [*model.parameters(), *model.buffers()]
    memo: dict[int, Any] = {id(each): _strip(each) for each in own}
    return copy.deepcopy(model, memo)


def _strip(tensor: Tensor) -> Tensor:
    bare = torch.empty_like(tensor, device="meta")
    return nn.Parameter(bare, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else bare


class RealStep:
    """A model with all that it takes to train it. The same seed gives the same numbers."""

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
        self._pure = _PURE.get(options.precision)
        self._random = torch.Generator(device="cpu").manual_seed(seed)
        self.model = model.to(device, self._pure).train()
        self._args, self._kwargs = self._build_inputs(inputs)
        self._optimizer = _build_optimizer(self.model, options)
        self._target: Tensor | None = None

    def zero(self) -> None:
        """Forget the gradients of the step before."""
        self._optimizer.zero_grad()

    def forward(self) -> Tensor:
        """The loss of one batch."""
        with self._mixed():
            loss = self._lose(self.model(*self._args, **self._kwargs))
        return loss / self.options.accumulation if self.options.accumulation > 1 else loss

    def backward(self, loss: Tensor) -> None:
        """The gradients."""
        torch.autograd.backward(loss)

    def update(self) -> None:
        """The parameters."""
        self._optimizer.step()

    def run(self) -> None:
        """The whole."""
        self.zero()
        for _batch in range(self.options.accumulation):
            self.backward(self.forward())
        self.update()

    def wait(self) -> None:
        """Until the device has done what it was asked for."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _mixed(self) -> AbstractContextManager[Any]:
        kind = _MIXED.get(self.options.precision)
        return nullcontext() if kind is None else torch.autocast(self.device.type, dtype=kind)

    def _build_inputs(self, inputs: Sequence[InputSpec]) -> tuple[list[Tensor], dict[str, Tensor]]:
        args, kwargs = [], {}
        for given in inputs:
            tensor = self._draw(given)
            if given.name:
                kwargs[given.name] = tensor
            else:
                args.append(tensor)
        return args, kwargs

    def _draw(self, given: InputSpec) -> Tensor:
        dtype: torch.dtype = getattr(torch, given.dtype)
        if not dtype.is_floating_point:
            return torch.randint(0, given.high or 2, given.shape, generator=self._random).to(self.device, dtype)
        if dtype is torch.float32 and self._pure is not None:
            dtype = self._pure
        return torch.randn(given.shape, generator=self._random).to(self.device, dtype)

    def _lose(self, out: Any) -> Tensor:
        """As the capture's loss, with targets that were drawn once."""
        own, word = find_own_loss(out), self.options.loss
        if own is not None and word in ("auto", "own"):
            return own
        result = find_result(out)
        assert result is not None, "the capture has looked for it"
        if word == "sum" or (word == "auto" and result.dim() < 2):
            return result.sum()
        if word == "mse":
            return functional.mse_loss(result, self._find_target(result.shape, 0))
        if result.dim() == 3:
            result = result.flatten(0, 1)
        return functional.cross_entropy(
            result, self._find_target((result.shape[0], *result.shape[2:]), result.shape[1])
        )

    def _find_target(self, shape: Shape, classes: int) -> Tensor:
        if self._target is None:
            if classes:
                target = torch.randint(0, classes, shape, generator=self._random)
            else:
                target = torch.randn(shape, generator=self._random, dtype=torch.float32).to(self._pure)
            self._target = target.to(self.device)
        return self._target


def _build_optimizer(model: nn.Module, options: StepOptions) -> torch.optim.Optimizer:
    parameters = [each for each in model.parameters() if each.requires_grad]
    foreach, fused = options.implementation == "foreach", options.implementation == "fused"
    if options.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=1e-6, momentum=MOMENTUM, foreach=foreach, fused=fused)
    family = torch.optim.Adam if options.optimizer == "adam" else torch.optim.AdamW
    return family(parameters, lr=1e-6, foreach=foreach, fused=fused)


@contextmanager
def checkpointed(model: nn.Module, watch: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Compute repeated blocks again in the backward phase; ``watch`` is entered where that happens."""
    blocks = [block for _, block in find_blocks(model)]
    for block in blocks:
        block.forward = _Checkpoint(block.forward, watch)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


class _Checkpoint:
    def __init__(self, forward: Callable[..., Any], watch: Callable[[], AbstractContextManager[Any]]) -> None:
        self._forward = forward
        self._watch = watch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        first = True

        def run(*given: Any, **named: Any) -> Any:
            nonlocal first
            if first:
                first = False
                return self._forward(*given, **named)
            with self._watch():
                return self._forward(*given, **named)

        return torch.utils.checkpoint.checkpoint(
            run, *args, use_reentrant=False, preserve_rng_state=False, determinism_check="none", **kwargs
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Without a model's warnings: they are of no use to who asks how long it takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
