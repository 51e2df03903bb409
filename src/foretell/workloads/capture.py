"""A training step's operators from a model's code: the step runs on tensors without data."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from foretell.core.errors import ForetellError
from foretell.core.workload import Operator, StepPhase, Workload
from foretell.workloads.dependencies import add_whole_updates, build_gradients, build_sources
from foretell.workloads.model_loading import explain
from foretell.workloads.precision import Casts
from foretell.workloads.recorder import CallMode, KernelMode, Record, Recorder
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.training_step import build_optimizer, build_whole_updates, checkpointed, compute_loss

_MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16}
_PURE = {"pure-bf16": torch.bfloat16, "pure-fp16": torch.float16}


def capture(
    model: nn.Module, inputs: Sequence[InputSpec], *, options: StepOptions | None = None, name: str = ""
) -> Workload:
    """The operators of one training step in the order in which they run. The model is moved to meta tensors.

    Raises:
        WorkloadError: The model cannot take the inputs, or does what depends on their values.
        SpecError: The model gives back nothing that the loss can be made of.
    """
    options = options or StepOptions()
    model = _prepare(model, options)
    names = {id(parameter): path for path, parameter in model.named_parameters()}
    mixed = _MIXED.get(options.precision)
    recorder = Recorder(names, Casts(mixed) if mixed is not None else None)
    with _watched(model, recorder), _gradients_noted(model, recorder), ExitStack() as stack:
        if options.checkpointing:
            stack.enter_context(checkpointed(model, recorder))
        try:
            _run_step(model, inputs, options, recorder)
        except ForetellError:
            raise
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AttributeError, KeyError) as exc:
            raise explain(exc, recorder) from exc
    operators, layers, views = _build(recorder)
    sources, gradients = build_sources(recorder), build_gradients(recorder)
    first = next((place for place, each in enumerate(operators) if each.phase is StepPhase.UPDATE), len(operators))
    whole = list(build_whole_updates(model, options))
    operators[first:first] = whole
    layers[first:first] = [""] * len(whole)
    views[first:first] = [0] * len(whole)
    return Workload(
        name=name or type(model).__name__,
        operators=tuple(operators),
        layers=tuple(layers),
        views=tuple(views),
        batch=inputs[0].shape[0] if inputs and inputs[0].shape else 1,
        settings=options.settings,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        sources=add_whole_updates(sources, gradients, first=first, count=len(whole)),
        gradients=gradients,
    )


def _prepare(model: nn.Module, options: StepOptions) -> nn.Module:
    _empty(model)
    model = model.to(_PURE[options.precision]) if options.precision in _PURE else model
    model.zero_grad(set_to_none=True)
    with suppress(NotImplementedError):  # a saved program stays as it was saved
        model.train()
    return model


def _empty(model: nn.Module) -> None:
    """Let go of all data. What modules share they share still, which is not so after ``to``."""
    moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for module in model.modules():
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None or tensor.device.type == "meta":
                continue
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor, _empty_like(tensor)
            setattr(module, name, moved[id(tensor)][1])


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_like(tensor, device="meta", requires_grad=False)
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


@contextmanager
def _watched(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Tell the recorder which module is at work."""
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
def _gradients_noted(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Tell the recorder when a parameter's gradient is ready."""
    learning = [each for each in model.parameters() if each.requires_grad]
    hooks = [each.register_post_accumulate_grad_hook(recorder.note_gradient) for each in learning]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _run_step(model: nn.Module, inputs: Sequence[InputSpec], options: StepOptions, recorder: Recorder) -> None:
    args, kwargs = build_tensors(inputs, _PURE.get(options.precision))
    with warnings.catch_warnings(), KernelMode(recorder):
        warnings.simplefilter("ignore")
        _run_batch(model, args, kwargs, options, recorder)
        if options.accumulation > 1:
            begin = len(recorder.records)
            _run_batch(model, args, kwargs, options, recorder)
            recorder.records += recorder.records[begin:] * (options.accumulation - 2)
    recorder.phase = StepPhase.UPDATE
    changed = [(path, each) for path, each in model.named_parameters() if each.grad is not None]
    if options.implementation == "foreach":
        recorder.records += _run_update([each for _, each in changed], options, recorder)
    elif options.implementation == "for-loop":
        recorder.records += _run_updates(changed, options, recorder)


def _run_updates(
    changed: Sequence[tuple[str, nn.Parameter]], options: StepOptions, recorder: Recorder
) -> Iterator[Record]:
    """One parameter after the other; equal ones are updated alike."""
    known: dict[tuple[torch.Size, torch.dtype], list[Record]] = {}
    for path, parameter in changed:
        key = parameter.shape, parameter.dtype
        if key not in known:
            known[key] = _run_update([parameter], options, recorder)
        layer = path.rpartition(".")[0]
        yield from recorder.repeat_update(known[key], parameter, layer)


def _run_update(parameters: Sequence[nn.Parameter], options: StepOptions, recorder: Recorder) -> list[Record]:
    optimizer = build_optimizer(parameters, options)
    optimizer.step()  # the first one only makes what the others update
    begin = len(recorder.records)
    with KernelMode(recorder):
        optimizer.step()
    records = recorder.records[begin:]
    del recorder.records[begin:]
    return records


def _run_batch(
    model: nn.Module,
    args: Sequence[torch.Tensor],
    kwargs: dict[str, torch.Tensor],
    options: StepOptions,
    recorder: Recorder,
) -> None:
    recorder.phase = StepPhase.FORWARD
    with torch.device("meta"), CallMode(recorder):
        loss = compute_loss(model(*args, **kwargs), options.loss)
        if options.accumulation > 1:
            loss = loss / options.accumulation
        if options.precision == "fp16":  # small gradients are kept from becoming nothing
            loss = loss * torch.empty(())
    first = torch.empty_like(loss)
    recorder.begin_backward()
    torch.autograd.backward(loss, grad_tensors=first)
    recorder.forget_graph()


def build_tensors(
    inputs: Sequence[InputSpec], floating: torch.dtype | None = None
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Tensors without data, in order and by name."""
    args: list[torch.Tensor] = []
    kwargs: dict[str, torch.Tensor] = {}
    for given in inputs:
        dtype = getattr(torch, given.dtype)
        if floating is not None and dtype is torch.float32:
            dtype = floating
        tensor = torch.empty(given.shape, dtype=dtype, device="meta")
        if given.name:
            kwargs[given.name] = tensor
        else:
            args.append(tensor)
    return args, kwargs


def _build(recorder: Recorder) -> tuple[list[Operator], list[str], list[int]]:
    """Operators, of which equal ones are one object, their layers, and the calls without work between them."""
    known: dict[Operator, Operator] = {}
    built: dict[int, Operator] = {}
    operators, layers, views = [], [], []
    last = recorder.first_node - 1
    for record in recorder.records:
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
