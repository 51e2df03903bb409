"""Finds the first training step in what a script does: from the first forward call to the end of the update."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from foretell.core.workload import StepPhase
from foretell.workloads.known_tensors import list_tensors
from foretell.workloads.operator_records import Record
from foretell.workloads.recorder import count_nodes, find_kind
from foretell.workloads.scripts.cuda_answers import is_on_gpu
from foretell.workloads.scripts.host_facts import find_batch_size, find_usual_s, measure_batch, read_resident_bytes
from foretell.workloads.scripts.module_paths import ModulePaths, is_wrapper
from foretell.workloads.scripts.parameter_types import ParameterTypes
from foretell.workloads.scripts.script_memory import ScriptMemory, list_parameters
from foretell.workloads.scripts.script_recorder import ScriptRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call of a model in training, and where it was."""

    record: int  # number of the first record that it may have made
    node: int  # sequence number of the first node of autograd that it may have made
    batch: int  # examples, as its first argument has them
    loader: Any
    batch_bytes: int | None  # as the loader gave it
    fetches: int  # batches that loaders had given before


class _ThreadState(threading.local):
    """What is true in one thread."""

    paused = 0  # while data is loaded


class StepWatch:
    """What has been recorded of the step, and where in it the script is.

    **Begin.** A recording begins with the first call of a module. It is dropped when the next batch is fetched, unless
    a module in training has run: so that evaluations before the training are no part of it. The step begins with the
    first call of a model in training that its loss depends on: trials of the model, such as for a summary, are none.
    **Thread.** The step is that of one thread: the first that calls a model in training.
    **Batches.** Each backward phase ends a batch; the next call of a module begins another one.
    **End.** The step ends when every optimizer has updated its parameters, or one of them is about to do so again.
    **Memory.** Where memory is recorded, a second step follows, with as many updates as the first one; it is not
    costed. If a GPU would run other kernels than those that are costed, the memory is that of two further steps.
    """

    def __init__(self, on_end: Callable[["StepWatch"], None]) -> None:
        self.active = True  # False in forked processes, such as the workers of a loader
        self.recorder: ScriptRecorder | None = None
        self.memory: ScriptMemory | None = None
        self.result: dict[str, Any] = {}  # the costed step, while further ones run
        self.steps = 0  # that have ended and of which the memory is known
        self.costing = True
        self.other_on_gpu = False  # whether the costed step ran kernels that a GPU does not run
        self.paths = ModulePaths()
        self.first: int | None = None  # number of the first record of a module in training
        self.kept: int | None = None  # records up to the end of the last update
        self.backwards = 0
        self.rounds = 0  # backward phases, each after a new forward phase
        self.fetches = 0
        self.batch = 0
        self.loader: Any = None  # that gave the batch of the step
        self.mixed: set[torch.dtype] = set()  # lower precisions of autocast and of FSDP
        self.types = ParameterTypes()
        self.batch_bytes: int | None = None  # as the loader gave it
        self.process_bytes: int | None = None  # before the step
        self.own_bytes = 0  # of it, Foretell's
        self.checkpointing = False
        self.compiled = False
        self.gpu = False
        self.wrappers: dict[str, None] = {}
        self.stepped: list[torch.optim.Optimizer] = []
        self._trained: weakref.WeakKeyDictionary[torch.optim.Optimizer, frozenset[int]] = weakref.WeakKeyDictionary()
        self.iterators: weakref.WeakSet[Any] = weakref.WeakSet()  # over loaders with workers
        self._state = _ThreadState()
        self._thread: int | None = None  # of the recorder
        self._calls: list[_Call] = []
        self.fetch_s: list[float] = []  # in which the process itself made each batch, without workers
        self._last_loader: Any = None
        self._last_bytes: int | None = None
        self._on_end = on_end
        self._depth = 0  # of calls of modules
        self._in_backward = 0
        self._in_update = 0
        self._recomputing = 0
        self._update_begin = 0
        self._was_new = False
        self._repeating = False
        self._forward_since = False  # the last backward phase
        self._updates_left = 0  # of a step that is not costed
        self._created: list[torch.optim.Optimizer] = []  # that had no state before the step

    @property
    def watching(self) -> bool:
        """Whether what happens now may belong to the step: it is in the thread of the step, and loads no data."""
        return self.active and not self._state.paused and self._thread in (None, threading.get_ident())

    @property
    def recording(self) -> bool:
        """Whether calls belong to the step."""
        return self.recorder is not None and self.watching

    @property
    def loading(self) -> bool:
        """Whether data is loaded now."""
        return self._state.paused > 0

    # Calls of PyTorch

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of PyTorch; record it if it belongs to the forward phase."""
        if not self.watching:
            return func(*args, **kwargs)
        if self.recorder is None and torch.is_grad_enabled() and _learns_from(args):
            self._start()
        if self._depth or self._recomputing:
            dtype = self.types.find_type(func, args)
            if dtype is not None:
                return dtype
            if find_kind(func) is not None:
                args, kwargs = self.types.apply(args, kwargs, self._cast)
        return self._run(func, args, kwargs)

    def _run(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        recorder = self.recorder
        if recorder is None or not (recorder.phase is StepPhase.FORWARD or self._recomputing):
            return func(*args, **kwargs)
        dtype = find_autocast(args)
        if dtype is not None:
            self.mixed.add(dtype)
        recorder.set_casts(dtype)
        return recorder.run(func, args, kwargs)

    def _cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        cast: torch.Tensor = self._run(torch.Tensor.to, (tensor, dtype), {})
        return cast

    # Modules

    def enter(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A module is called."""
        if is_wrapper(module) or not (self.watching or self._takes_over(module)):
            return
        outer = self._depth == 0 and not self._in_backward
        self._depth += 1
        if outer:
            self._enter_root(module, args, kwargs)
        if self.recorder is not None:
            layers = self.recorder.layers
            layers.append(self.paths.find(module, layers[-1]))

    def leave(self, module: nn.Module) -> None:
        """A call of a module has ended."""
        if is_wrapper(module) or not self.watching:
            return
        self._depth = max(0, self._depth - 1)
        if self.recorder is not None and len(self.recorder.layers) > 1:
            self.recorder.layers.pop()

    def _takes_over(self, module: nn.Module) -> bool:
        """Whether the step is that of this thread: no other one trains, and it begins to."""
        if not self.active or self.loading or self._calls or not (torch.is_grad_enabled() and module.training):
            return False
        self.recorder = self._thread = None
        self._depth = 0
        return True

    def _enter_root(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        recorder = self.recorder or self._start()
        self._begin_phase(recorder, StepPhase.FORWARD)
        self._forward_since = True
        parameters = self.paths.add(module, self._note_gradient)
        if self.memory is not None:
            self.memory.enter_model(module, (args, dict(kwargs)))
        if any(map(is_on_gpu, parameters)):
            recorder.on_gpu_only = self.gpu = True
        if not (parameters and torch.is_grad_enabled()) or self.backwards:
            return
        batch = next((each.shape[0] for each in list_tensors((args, dict(kwargs))) if each.dim()), 0)
        if module.training and any(each.requires_grad for each in parameters):
            self._calls.append(
                _Call(
                    record=recorder.next_number,
                    node=count_nodes(),
                    batch=batch or self.batch,
                    loader=self._last_loader,
                    batch_bytes=self._last_bytes,
                    fetches=self.fetches,
                )
            )
        self.batch = self.batch or batch

    def _start(self) -> ScriptRecorder:
        self._thread = threading.get_ident()
        self.recorder = ScriptRecorder(self.paths.names)
        self.process_bytes = read_resident_bytes()
        self.recorder.layers.extend([""] * self._depth)
        if self.memory is not None:
            self.memory.begin_recording()
            self.memory.begin_phase(StepPhase.FORWARD)
        return self.recorder

    def _begin_phase(self, recorder: ScriptRecorder, phase: StepPhase) -> None:
        if recorder.phase is not phase and self.memory is not None:
            self.memory.begin_phase(phase)
        recorder.phase = phase

    def find_running(self) -> tuple[str, str]:
        """The kind and the layer of the call that runs now; none where nothing is recorded."""
        return self.recorder.find_running() if self.recorder is not None else ("", "")

    def _note_gradient(self, parameter: torch.Tensor) -> None:
        if self.recorder is not None and self.recorder.phase is StepPhase.BACKWARD:
            self.recorder.note_gradient(parameter)

    # Data

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """While data is loaded."""
        self._state.paused += 1
        try:
            yield
        finally:
            self._state.paused -= 1

    def note_batch(self, loader: Any, batch: Any) -> None:
        """A loader has given a batch."""
        self._last_loader = loader
        if self.first is None:
            self._last_bytes = measure_batch(batch)
        self.fetches += 1
        if not self._calls and not self.backwards and not self._depth:
            self.recorder = None
            self.batch = 0

    # Phases

    def begin_backward(self, results: Sequence[torch.Tensor], *, whole: bool = True) -> None:
        """A backward phase begins; one of some gradients only is no batch."""
        self._in_backward += 1
        if self.recorder is not None and self._in_backward == 1:
            if whole and self.first is None:
                self._find_begin(results)
            self.types.forget()
            self.backwards += 1
            if whole:
                self.rounds += self._forward_since
                self._forward_since = False
            if self.memory is not None:
                self.memory.mark_casts(self.recorder.cast_parameters)
                self.memory.begin_phase(StepPhase.BACKWARD)
            self.recorder.begin_backward()

    def _find_begin(self, results: Iterable[torch.Tensor]) -> None:
        """Begin the step with the first call of a model in training that a loss depends on."""
        node = _find_first_node(results)
        used = [call for call in self._calls if node is not None and call.node <= node]
        first = next(iter([*used[-1:], *self._calls]), None)
        if first is not None:
            self.first, self.loader, self.batch_bytes = first.record, first.loader, first.batch_bytes
            self.batch = first.batch or self.batch
            self.fetches -= first.fetches

    def end_backward(self, *, whole: bool = True) -> None:
        """A backward phase has ended. After one of some gradients, the forward phase continues."""
        self._in_backward -= 1
        self.types.forget()
        if self.recorder is not None and not self._in_backward:
            self.recorder.forget_graph()
            if self.memory is not None:
                self.memory.mark_gradients(self._list_learned())
            self._begin_phase(self.recorder, StepPhase.UPDATE if whole else StepPhase.FORWARD)

    def begin_recomputing(self, layer: str) -> None:
        """A checkpointed part is computed again."""
        self._recomputing += 1
        if self.recorder is not None:
            self.recorder.layers.append(layer)

    def end_recomputing(self, depth: int) -> None:
        """A checkpointed part has been computed again, or what is needed of it."""
        self._recomputing -= 1
        if self.recorder is not None:
            del self.recorder.layers[depth:]

    # Updates

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Note what a new optimizer trains: later, scripts freeze one model while another one learns."""
        self._trained[optimizer] = frozenset(id(each) for each in list_parameters(optimizer) if each.requires_grad)

    def begin_update(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer begins its step."""
        self._in_update += 1
        if self._repeating or self._in_update > 1 or self.recorder is None:
            return
        if self.costing and self.kept is not None and any(each is optimizer for each in self.stepped):
            self.end()
        if not self._in_backward:
            self._begin_phase(self.recorder, StepPhase.UPDATE)
        self._update_begin = len(self.recorder.records)
        self._was_new = not optimizer.state

    def end_update(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has ended its step."""
        self._in_update -= 1
        if self._repeating or self._in_update or self.recorder is None or not self.backwards:
            return
        self._begin_phase(self.recorder, StepPhase.UPDATE)
        if self.memory is not None:
            self.memory.end_update(optimizer)
        if not self.costing:
            self._updates_left -= 1
            if not self._updates_left:
                self.end()
            return
        if self._was_new:
            self._created.append(optimizer)
            self._repeat(optimizer, self.recorder)
        self.stepped.append(optimizer)
        self.kept = len(self.recorder.records)
        if not self.find_waiting():
            self.end()

    def _repeat(self, optimizer: torch.optim.Optimizer, recorder: ScriptRecorder) -> None:
        """Update once more: the first step of an optimizer creates its state, which no other step does."""
        records = recorder.records
        begin = len(records)
        while begin > self._update_begin and records[begin - 1].phase is StepPhase.UPDATE:
            begin -= 1
        first: list[Record] = records[begin:]
        del records[begin:]
        self._repeating = True
        try:
            with self.memory.suspended(optimizer) if self.memory is not None else contextlib.nullcontext():
                optimizer.step()
        except Exception:  # it needs its closure: its first step is what is known
            del records[begin:]
            records.extend(first)
        finally:
            self._repeating = False

    def find_waiting(self) -> list[torch.optim.Optimizer]:
        """Optimizers with parameters that no optimizer has updated yet."""
        updated = {id(each) for optimizer in self.stepped for each in list_parameters(optimizer)}
        return [
            optimizer
            for optimizer, trained in self._trained.items()
            if any(
                (each.requires_grad or id(each) in trained) and id(each) not in updated
                for each in list_parameters(optimizer)
            )
        ]

    def end(self) -> None:
        """The step has ended."""
        self.active = False
        self._on_end(self)

    def begin_next_step(self) -> None:
        """Continue to record memory until the script has taken another step."""
        assert self.recorder is not None
        assert self.memory is not None
        self._updates_left = len(self.stepped)
        self.costing = self.recorder.costing = False
        self.memory.begin_step()
        if self.other_on_gpu:
            self.other_on_gpu = False
            self.steps = 0
            self._forget_step(self.memory)
        if not self._in_update:
            self._begin_phase(self.recorder, StepPhase.FORWARD)
        self.active = True

    def _forget_step(self, memory: ScriptMemory) -> None:
        """Let the next step be the first one, in which gradients and states are created."""
        for optimizer in self._created:
            optimizer.state.clear()
        if not self._in_update:
            for parameter in self._list_learned():
                parameter.grad = None
        memory.forget_step()

    def _list_learned(self) -> Iterator[torch.Tensor]:
        for root in self.paths.roots:
            yield from root.parameters()
        for optimizer in self._trained:
            yield from list_parameters(optimizer)

    def list_workers(self) -> list[int]:
        """The processes that load the data of the step."""
        own = [each for each in self.iterators if getattr(each, "_foretell_loader", None) is self.loader]
        return [each.pid for iterator in own for each in getattr(iterator, "_workers", ()) if each.pid is not None]

    def count_batches(self) -> int:
        """Batches of the step. With several models, a batch may have several backward phases."""
        if len(self.paths.roots) == 1:
            return max(1, self.rounds)
        return max(1, self.fetches + 1) if self.loader is not None else 1

    def find_load_s(self) -> float | None:
        """In which a batch was made, as far as this process made them."""
        return find_usual_s(self.fetch_s) if self.loader is not None else None

    def find_batch_size(self) -> int:
        """Examples of a batch: as the loader or its sampler says, else the first dimension of the first tensor."""
        size = find_batch_size(self.loader) or self.batch
        if size:
            return size
        shapes = [shape for record in self.recorder.records for shape in record.inputs] if self.recorder else []
        return next((shape[0] for shape in shapes if shape), 1)


def find_autocast(args: Sequence[Any]) -> torch.dtype | None:
    """The lower precision of autocast, if it is on for the GPU and the arguments are there."""
    if torch.is_autocast_enabled("cuda") and any(map(is_on_gpu, list_tensors(args))):
        return torch.get_autocast_dtype("cuda")
    return None


def _find_first_node(results: Iterable[torch.Tensor]) -> int | None:
    """The sequence number of the first node of autograd that results depend on."""
    left = [each.grad_fn for each in results if each.grad_fn is not None]
    seen = set(left)
    first: int | None = None
    while left:
        node = left.pop()
        following = [each for each, _ in node.next_functions if each is not None and each not in seen]
        if node.next_functions:  # others only hold a parameter
            first = min(node._sequence_nr(), first if first is not None else node._sequence_nr())
        seen.update(following)
        left += following
    return first


def _learns_from(args: Sequence[Any]) -> bool:
    """Whether a call uses a tensor that is trained; parameters are used by modules, and before that initialized."""
    return any(
        isinstance(each, torch.Tensor) and each.requires_grad and not isinstance(each, nn.Parameter) for each in args
    )
