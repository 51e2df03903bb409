"""Finds the first training step in what a script does: from the first forward call to the end of the update."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from foretell.core.workload import StepPhase
from foretell.workloads.operator_records import Record
from foretell.workloads.scripts.cuda_answers import is_on_gpu
from foretell.workloads.scripts.large_tensors import list_tensors
from foretell.workloads.scripts.module_paths import ModulePaths
from foretell.workloads.scripts.script_memory import ScriptMemory, list_parameters
from foretell.workloads.scripts.script_recorder import ScriptRecorder


class StepWatch:
    """What has been recorded of the step, and where in it the script is.

    **Begin.** A recording begins with the first call of a module. It is dropped when the next batch is fetched, unless
    a module in training has run: so that evaluations before the training are no part of it.
    **Batches.** Each backward phase ends a batch; the next call of a module begins another one.
    **End.** The step ends when every optimizer has updated its parameters, or one of them is about to do so again.
    **Memory.** Where memory is recorded, a second step follows, with as many updates as the first one; it is not
    costed. If a GPU would run other kernels than those that are costed, the memory is that of two further steps.
    """

    def __init__(self, on_end: Callable[["StepWatch"], None]) -> None:
        self.active = True  # False in forked processes, such as the workers of a loader
        self.paused = 0  # while data is loaded
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
        self.autocast: set[torch.dtype] = set()
        self.checkpointing = False
        self.compiled = False
        self.gpu = False
        self.wrappers: dict[str, None] = {}
        self.stepped: list[torch.optim.Optimizer] = []
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.iterators: weakref.WeakSet[Any] = weakref.WeakSet()  # over loaders with workers
        self._last_loader: Any = None
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
    def recording(self) -> bool:
        """Whether calls belong to the step."""
        return self.active and self.recorder is not None and not self.paused

    # Calls of PyTorch

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of PyTorch; record it if it belongs to the forward phase."""
        if self.recorder is None and not self.paused and torch.is_grad_enabled() and _learns_from(args):
            self._start()
        recorder = self.recorder
        if recorder is None or self.paused or not (recorder.phase is StepPhase.FORWARD or self._recomputing):
            return func(*args, **kwargs)
        dtype = find_autocast(args)
        if dtype is not None:
            self.autocast.add(dtype)
        recorder.set_casts(dtype)
        return recorder.run(func, args, kwargs)

    # Modules

    def enter(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A module is called."""
        if self.paused or is_wrapper(module):
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
        if self.paused or is_wrapper(module):
            return
        self._depth = max(0, self._depth - 1)
        if self.recorder is not None and len(self.recorder.layers) > 1:
            self.recorder.layers.pop()

    def _enter_root(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        recorder = self.recorder or self._start()
        self._begin_phase(recorder, StepPhase.FORWARD)
        self._forward_since = True
        parameters = self.paths.add(module, self._note_gradient)
        if self.memory is not None:
            self.memory.enter_model(module, (args, dict(kwargs)))
        if any(map(is_on_gpu, parameters)):
            recorder.on_gpu_only = self.gpu = True
        learns = torch.is_grad_enabled() and module.training and any(each.requires_grad for each in parameters)
        if learns and self.first is None:
            self.first = recorder.next_number
            self.loader = self._last_loader
            self.fetches = 0
        if parameters and not self.batch and (learns or torch.is_grad_enabled()):
            self.batch = next((each.shape[0] for each in list_tensors((args, dict(kwargs))) if each.dim()), 0)

    def _start(self) -> ScriptRecorder:
        self.recorder = ScriptRecorder(self.paths.names)
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

    def note_batch(self, loader: Any) -> None:
        """A loader has given a batch."""
        self._last_loader = loader
        self.fetches += 1
        if self.first is None and not self.backwards and not self._depth:
            self.recorder = None
            self.batch = 0

    # Phases

    def begin_backward(self, *, whole: bool = True) -> None:
        """A backward phase begins; one of some gradients only is no batch."""
        self._in_backward += 1
        if self.recorder is not None and self._in_backward == 1:
            self.backwards += 1
            if whole:
                self.rounds += self._forward_since
                self._forward_since = False
            if self.memory is not None:
                self.memory.mark_casts(self.recorder.cast_parameters)
                self.memory.begin_phase(StepPhase.BACKWARD)
            self.recorder.begin_backward()

    def end_backward(self, *, whole: bool = True) -> None:
        """A backward phase has ended. After one of some gradients, the forward phase continues."""
        self._in_backward -= 1
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
            with self.memory.suspended(optimizer) if self.memory is not None else nullcontext():
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
            for optimizer in self.optimizers
            if any(each.requires_grad and id(each) not in updated for each in list_parameters(optimizer))
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
        for optimizer in self.optimizers:
            yield from list_parameters(optimizer)

    def count_batches(self) -> int:
        """Batches of the step. With several models, a batch may have several backward phases."""
        if len(self.paths.roots) == 1:
            return max(1, self.rounds)
        return max(1, self.fetches + 1) if self.loader is not None else 1

    def find_batch_size(self) -> int:
        """Examples of a batch: as the loader says, else the first dimension of the first tensor."""
        size = getattr(self.loader, "batch_size", None)
        if isinstance(size, int) and not isinstance(size, bool):
            return size
        if self.batch:
            return self.batch
        shapes = [shape for record in self.recorder.records for shape in record.inputs] if self.recorder else []
        return next((shape[0] for shape in shapes if shape), 1)


def find_autocast(args: Sequence[Any]) -> torch.dtype | None:
    """The lower precision of autocast, if it is on for the GPU and the arguments are there."""
    if torch.is_autocast_enabled("cuda") and any(map(is_on_gpu, list_tensors(args))):
        return torch.get_autocast_dtype("cuda")
    return None


def is_wrapper(module: nn.Module) -> bool:
    """Whether a module only passes calls on to the model it contains."""
    return type(module).__name__ in ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def _learns_from(args: Sequence[Any]) -> bool:
    """Whether a call uses a tensor that is trained; parameters are used by modules, and before that initialized."""
    return any(
        isinstance(each, torch.Tensor) and each.requires_grad and not isinstance(each, nn.Parameter) for each in args
    )
