"""Captures the operators of a training step by running it on tensors without data, see ``hybrid_tensors``."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from foretell.core.errors import ForetellError
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.autocast import Casts
from foretell.workloads.example_inputs import arrange_inputs, build_example_input, seeded
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.known_tensors import move_to_meta, remove_data, replace_tensors
from foretell.workloads.lightning_steps import USED, build_own_optimizers, compute_step_loss, is_lightning
from foretell.workloads.model_loading import explain
from foretell.workloads.operator_records import Record, build_gradients, build_sources, insert_fused_updates
from foretell.workloads.optimizers import build_optimizer
from foretell.workloads.recorder import CallMode, KernelMode, Recorder
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.step_passes import apply_options
from foretell.workloads.trained_parts import choose_trained_parts
from foretell.workloads.training_step import (
    MIXED,
    PURE,
    build_fused_updates,
    checkpointed,
    compute_loss,
    ignore_warnings,
)


def capture(
    model: nn.Module, inputs: Sequence[InputSpec], *, options: StepOptions | None = None, name: str = ""
) -> Workload:
    """The operators of one training step in the order in which they run. The model is moved to meta tensors.

    Raises:
        WorkloadError: The model does not accept the inputs, or depends on unknown values.
        SpecError: The model returns nothing from which the loss can be computed.
    """
    options = options or StepOptions()
    with prepared(model, options):
        recorder, notes = _record(model, inputs, options)
    operators, layers, views = build_operators(recorder.records, recorder.first_node)
    sources = build_sources(recorder.records, recorder.merged)
    gradients = build_gradients(recorder.records, recorder.gradients.values(), recorder.merged)
    fused = list(build_fused_updates(model, options)) if options.mode == "training" else []
    first = next((place for place, each in enumerate(operators) if each.phase is StepPhase.UPDATE), len(operators))
    operators[first:first] = fused
    layers[first:first] = [""] * len(fused)
    views[first:first] = [0] * len(fused)
    workload = Workload(
        name=name or type(model).__name__,
        operators=tuple(operators),
        layers=tuple(layers),
        views=tuple(views),
        batch=next((each.shape[0] for each in inputs if each.shape), 1),
        settings={**options.settings, **({"optimizer": recorder.optimizer} if recorder.optimizer else {})},
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        sources=insert_fused_updates(sources, gradients, first=first, count=len(fused)),
        gradients=gradients,
        notes=notes,
    )
    return apply_options(workload, options)


def _record(model: nn.Module, inputs: Sequence[InputSpec], options: StepOptions) -> tuple[Recorder, tuple[str, ...]]:
    """What a step runs, and what was assumed."""
    names = {id(parameter): path for path, parameter in model.named_parameters()}
    mixed = MIXED.get(options.precision)
    recorder = Recorder(names, Casts(mixed) if mixed is not None else None)
    tensors = HybridTensors()
    with layers_tracked(model, recorder), _gradients_tracked(model, recorder), ExitStack() as stack:
        if recorder.casts is not None:
            stack.enter_context(recorder.casts.follow_contexts())
        if options.checkpointing:
            stack.enter_context(
                checkpointed(model, lambda name: record_again(name, recorder), recompute=options.recompute)
            )
        try:
            _run_step(model, inputs, options, recorder, tensors)
        except ForetellError:
            raise
        except (Exception, SystemExit) as exc:
            raise explain(exc, recorder) from exc
    return recorder, tensors.notes


@contextmanager
def prepared(model: nn.Module, options: StepOptions) -> Iterator[None]:
    """Run the model without data; afterwards it is on meta tensors."""
    if options.precision in PURE:
        move_to_meta(model)
        model.to(PURE[options.precision])
    restore = choose_trained_parts(model, options)
    replace_tensors(model, remove_data)
    model.zero_grad(set_to_none=True)
    with suppress(NotImplementedError):  # a saved program keeps the mode it was saved in
        model.train(options.mode == "training")
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)
        move_to_meta(model)
        restore()


@contextmanager
def layers_tracked(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let the recorder know which module runs."""
    paths = {id(module): path for path, module in model.named_modules()}
    layers = recorder.layers

    def enter(module: nn.Module, _given: Any) -> None:
        layers.append(paths.get(id(module), layers[-1]))

    def leave(_module: nn.Module, _given: Any, _out: Any) -> None:
        layers.pop()

    hooks = (register_module_forward_pre_hook(enter), register_module_forward_hook(leave))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _gradients_tracked(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let the recorder know when the gradient of a parameter is ready."""
    learning = [each for each in model.parameters() if each.requires_grad]
    hooks = [each.register_post_accumulate_grad_hook(recorder.note_gradient) for each in learning]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def record_again(layer: str, recorder: Recorder) -> Iterator[None]:
    """Record a checkpointed block while it is computed again in the backward phase."""
    depth = len(recorder.layers)
    recorder.layers.append(layer)
    try:
        with CallMode(recorder):
            yield
    finally:  # PyTorch leaves a block early once it has what it needs
        del recorder.layers[depth:]


def _run_step(
    model: nn.Module, inputs: Sequence[InputSpec], options: StepOptions, recorder: Recorder, tensors: HybridTensors
) -> None:
    args, kwargs = arrange_inputs(
        inputs, lambda given: build_example_input(given, PURE.get(options.precision)), model.forward
    )
    if options.mode == "inference":
        with ignore_warnings(), seeded(), tensors, KernelMode(recorder), torch.no_grad(), CallMode(recorder):
            model(*args, **kwargs)
        return
    with ignore_warnings(), seeded(), tensors, KernelMode(recorder):
        _run_batch(model, args, kwargs, options, recorder)
        if options.accumulation > 1:
            begin = len(recorder.records)
            _run_batch(model, args, kwargs, options, recorder)
            recorder.records += recorder.records[begin:] * (options.accumulation - 2)
    recorder.phase = StepPhase.UPDATE
    if is_lightning(model):
        tensors.note(USED.format(name=type(model).__name__))
        for optimizer in build_own_optimizers(model, options.implementation):
            recorder.optimizer = type(optimizer).__name__.lower()
            recorder.records += run_optimizer(optimizer, recorder)
        return
    changed = [(path, each) for path, each in model.named_parameters() if each.grad is not None]
    if options.implementation == "foreach":
        recorder.records += _run_update([each for _, each in changed], options, recorder)
    elif options.implementation == "for-loop":
        recorder.records += _run_updates(changed, options, recorder)


def _run_updates(
    changed: Sequence[tuple[str, nn.Parameter]], options: StepOptions, recorder: Recorder
) -> Iterator[Record]:
    """The updates of each parameter; parameters of equal shape and type have equal updates."""
    known: dict[tuple[torch.Size, torch.dtype], list[Record]] = {}
    for path, parameter in changed:
        key = parameter.shape, parameter.dtype
        if key not in known:
            known[key] = _run_update([parameter], options, recorder)
        layer = path.rpartition(".")[0]
        yield from recorder.repeat_update(known[key], parameter, layer)


def _run_update(parameters: Sequence[nn.Parameter], options: StepOptions, recorder: Recorder) -> list[Record]:
    return run_optimizer(build_optimizer(parameters, options), recorder)


def run_optimizer(optimizer: torch.optim.Optimizer, recorder: Recorder) -> list[Record]:
    optimizer.step()  # the first step only creates the optimizer's state
    begin = len(recorder.records)
    with KernelMode(recorder):
        optimizer.step()
    records = recorder.records[begin:]
    del recorder.records[begin:]
    return records


def _run_batch(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    options: StepOptions,
    recorder: Recorder,
) -> None:
    recorder.phase = StepPhase.FORWARD
    with CallMode(recorder):
        _, loss = run_to_loss(model, args, kwargs, options)
        if options.accumulation > 1:
            loss = loss / options.accumulation
        if options.precision == "fp16":  # loss scaling keeps small gradients from underflow
            loss = loss * torch.empty(())
    first = remove_data(torch.empty_like(loss))
    recorder.begin_backward()
    torch.autograd.backward(loss, grad_tensors=first)
    recorder.forget_graph()


def run_to_loss(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], options: StepOptions
) -> tuple[Any, torch.Tensor]:
    """What the model returns, nothing if a step of its own computes the loss, and the loss."""
    if is_lightning(model):
        return None, compute_step_loss(model, args, kwargs)
    if options.loss in ("auto", "own") and "return_loss" in inspect.signature(model.forward).parameters:
        kwargs = {"return_loss": True, **kwargs}
    out = model(*args, **kwargs)
    return out, compute_loss(out, options.loss)


def build_operators(records: Sequence[Record], first_node: int) -> tuple[list[Operator], list[str], list[int]]:
    """Operators (equal ones are one object), their layers, and the number of views before each."""
    known: dict[Operator, Operator] = {}
    built: dict[int, Operator] = {}
    operators, layers, views = [], [], []
    last = first_node - 1
    for record in records:
        operator = built.get(id(record))
        if operator is None:
            operator = record.build()
            operator = built[id(record)] = known.setdefault(operator, operator)
        operators.append(operator)
        layers.append(record.layer)
        between = 0
        if record.phase is StepPhase.FORWARD:
            between = max(0, record.first_node - last - 1)
            last = record.last_node
        views.append(between)
    return operators, layers, views
