"""Captures the memory of two training steps, or two inferences, by running them on tensors without data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from foretell.core.errors import ForetellError
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.workloads.autocast import Casts
from foretell.workloads.capture import layers_tracked, prepared, record_again, run_to_loss
from foretell.workloads.cuda_paths import CpuPaths, CudaPaths
from foretell.workloads.example_inputs import arrange_inputs, build_example_input, seeded
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.known_tensors import remove_data
from foretell.workloads.lightning_steps import USED, build_own_optimizers, is_lightning
from foretell.workloads.memory_recorder import MemoryMode, MemoryRecorder
from foretell.workloads.model_loading import explain
from foretell.workloads.optimizers import build_optimizer
from foretell.workloads.recorder import RECURRENT, CallMode, Recorder
from foretell.workloads.step_options import InputSpec, StepOptions, find_length
from foretell.workloads.training_step import (
    MIXED,
    PURE,
    checkpointed,
    find_blocks,
    find_heads,
    ignore_warnings,
)

_RECURRENT_NOTE = (
    "recurrent layers are recorded step by step; cuDNN runs a layer at once, in a workspace of unknown size"
)
_STEPS = 2  # the second is like all later ones


def capture_memory(
    model: nn.Module,
    inputs: Sequence[InputSpec],
    *,
    options: StepOptions | None = None,
    name: str = "",
    on_gpu: bool = True,
) -> MemoryTrace:
    """The blocks of memory that a step on a GPU asks for, or one on a CPU. The model is moved to meta tensors.

    Raises:
        WorkloadError: The model does not accept the inputs, or depends on unknown values.
        SpecError: The model returns nothing from which the loss can be computed.
    """
    options = options or StepOptions()
    with prepared(model, options):
        step = _Steps(model, inputs, options, on_gpu=on_gpu)
        step.run()
    return step.memory.build(
        name=name or type(model).__name__,
        batch=next((each.shape[0] for each in inputs if each.shape), 1),
        settings=options.settings,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        length=find_length(inputs),
        repeated=tuple(name for name, _block in find_blocks(model)),
        heads=find_heads(model),
        notes=(*step.tensors.notes, *([_RECURRENT_NOTE] if on_gpu and step.memory.operators & RECURRENT else [])),
    )


def build_casts(options: StepOptions) -> Casts | None:
    """What autocast does with these options."""
    mixed = MIXED.get(options.precision)
    return Casts(mixed) if mixed is not None else None


class _Steps:
    """Runs steps as the usual training loop does: the loss and the results of a batch live until the next batch."""

    def __init__(self, model: nn.Module, inputs: Sequence[InputSpec], options: StepOptions, *, on_gpu: bool) -> None:
        self.tensors = HybridTensors()
        self._model, self._inputs, self._options = model, inputs, options
        self._paths_of_device = CudaPaths if on_gpu else CpuPaths
        self._recorder = Recorder({}, build_casts(options), on_gpu=on_gpu)
        self.memory = MemoryRecorder(self._recorder)
        self._paths = {id(parameter): path for path, parameter in model.named_parameters()}
        self._kept: Any = None  # the results and the loss of the last batch
        self._optimizers: list[torch.optim.Optimizer] = []

    def run(self) -> None:
        """Run all steps."""
        self.memory.hold(self._model.named_parameters(), MemoryKind.WEIGHTS)
        self.memory.hold(self._model.named_buffers(), MemoryKind.BUFFERS)
        with ExitStack() as stack:
            stack.enter_context(layers_tracked(self._model, self._recorder))
            if self._recorder.casts is not None:
                stack.enter_context(self._recorder.casts.follow_contexts())
            if self._options.checkpointing:
                stack.enter_context(checkpointed(self._model, self._recompute, recompute=self._options.recompute))
            for context in (
                ignore_warnings(),
                seeded(),
                self.tensors,
                self._paths_of_device(),
                MemoryMode(self.memory),
            ):
                stack.enter_context(context)
            try:
                for _step in range(_STEPS):
                    self.memory.begin_step()
                    self._run_step()
            except ForetellError:
                raise
            except (Exception, SystemExit) as exc:
                raise explain(exc, self._recorder) from exc

    @contextmanager
    def _recompute(self, layer: str) -> Iterator[None]:
        """Compute a block again: modes of the forward phase are not active in the backward phase."""
        try:
            with self._paths_of_device(), record_again(layer, self._recorder):
                yield
        finally:
            self._forget_casts()

    def _forget_casts(self) -> None:
        """Autocast keeps the weights that it casts until its context ends: that of the forward phase, or of a block."""
        if self._recorder.casts is not None:
            casts = self._recorder.casts.parameters.items()
            self.memory.assign(((self._paths.get(each, ""), cast) for each, cast in casts), MemoryKind.CASTS)
        self._recorder.forget_casts()

    def _run_step(self) -> None:
        args, kwargs = arrange_inputs(self._inputs, self._build_input, self._model.forward)
        if self._options.mode != "training":
            self._begin(StepPhase.FORWARD)
            with torch.no_grad(), CallMode(self._recorder):
                self._kept = self._model(*args, **kwargs)
            self._recorder.forget_casts()
            return
        for parameter in self._model.parameters():
            parameter.grad = None
        for _batch in range(min(self._options.accumulation, 2)):  # further batches ask for the same as the second
            self._run_batch(args, kwargs)
        self._update()

    def _build_input(self, given: InputSpec) -> Any:
        value = build_example_input(given, PURE.get(self._options.precision))
        if isinstance(value, torch.Tensor):
            self.memory.allocate(value, MemoryKind.INPUTS)
        return value

    def _begin(self, phase: StepPhase) -> None:
        self._recorder.phase = phase
        self.memory.begin_phase(phase)

    def _run_batch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._begin(StepPhase.FORWARD)
        with CallMode(self._recorder):
            self._kept = out, loss = run_to_loss(self._model, args, kwargs, self._options)
            del out
            scaled = loss / self._options.accumulation if self._options.accumulation > 1 else loss
            if self._options.precision == "fp16":  # loss scaling keeps small gradients from underflow
                scaled = scaled * torch.empty(())
        first = remove_data(torch.empty_like(scaled))
        self._forget_casts()
        self._recorder.begin_backward()
        self._begin(StepPhase.BACKWARD)
        torch.autograd.backward(scaled, grad_tensors=first)
        self._recorder.forget_graph()
        learned = [(path, each.grad) for path, each in self._model.named_parameters() if each.grad is not None]
        self.memory.assign(learned, MemoryKind.GRADIENTS)

    def _update(self) -> None:
        self._begin(StepPhase.UPDATE)
        self._optimizers = self._optimizers or self._build_optimizers()
        for optimizer in self._optimizers:
            optimizer.step()
            self.memory.assign(self._find_states(optimizer), MemoryKind.OPTIMIZER)

    def _find_states(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
        for parameter, states in optimizer.state.items():
            for value in states.values():
                if isinstance(value, torch.Tensor):
                    yield self._paths.get(id(parameter), ""), value

    def _build_optimizers(self) -> list[torch.optim.Optimizer]:
        if is_lightning(self._model):
            self.tensors.note(USED.format(name=type(self._model).__name__))
            return build_own_optimizers(self._model, self._options.implementation)
        trained = [each for each in self._model.parameters() if each.requires_grad]
        return [build_optimizer(trained, self._options)]
