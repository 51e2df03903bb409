"""Records the operators of a step while it runs on tensors without data, see ``hybrid_tensors``.

A ``TorchFunctionMode`` receives the outermost calls of the model's code: these are the operators. A
``TorchDispatchMode`` receives the ATen calls below them: these are their costs. In the backward phase, the sequence
number of the autograd node identifies the forward call. Each tensor carries the numbers of the records that made it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.core.workload import Attribute, Shape, StepPhase
from foretell.workloads.autocast import Casts, discount_cast, give_single_precision, is_fused_cast
from foretell.workloads.call_attributes import find_attributes
from foretell.workloads.kernel_costs import KernelCost, cost_kernel
from foretell.workloads.known_tensors import DEVICE, is_known, list_tensors
from foretell.workloads.meta_results import use_fused_attention
from foretell.workloads.operator_costs import ACTIVATIONS, normalize_name
from foretell.workloads.operator_records import ACCUMULATE, ReadyGradient, Record
from foretell.workloads.tensor_notes import NOTHING, SourceNotes, creates

_aten = torch.ops.aten
_ADDITIONS = frozenset({torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor})
RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_NO_NODE = 2**63  # sequence numbers from here on belong to no forward call


class Recorder:
    """The operators recorded so far, in order."""

    def __init__(self, names: Mapping[int, str], casts: Casts | None = None, *, on_gpu: bool = True) -> None:
        self.records: list[Record] = []
        self.phase = StepPhase.FORWARD
        self.layers: list[str] = [""]
        self.casts = casts
        self._on_gpu = on_gpu
        self.first_node = count_nodes()
        self.failed: tuple[str, tuple[Shape, ...]] | None = None
        self.merged: dict[int, int] = {}  # number of a record: number of the record it became part of
        self.gradients: dict[int, ReadyGradient] = {}  # of this batch, by the identity of the parameter
        self.optimizer = ""  # of the model itself
        self._sources = SourceNotes()
        self._constants: set[int] = set()  # numbers of records whose results depend on no parameter
        self._count = 0  # records made
        self._first_backward = 0  # number of the first record of the backward phase
        self._recomputed: dict[tuple[Any, ...], list[int]] = {}
        self._names = names  # of parameters, by identity
        self._call: Record | None = None  # the call that runs now
        self._starts: list[int] = []  # first autograd nodes of the forward calls
        self._ends: list[int] = []  # the first after them
        self._calls: list[Record] = []
        self._backward: dict[int, Record] = {}
        self._trailing: list[tuple[Record | None, Record]] = []  # additions that may belong to a call
        self._counter: KernelCost | None = None

    # Forward: calls of the model's code

    def run(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of PyTorch and record it."""
        kind = find_kind(func)
        if self._call is not None:
            return func(*args, **kwargs)
        if kind is None:
            out = func(*args, **kwargs)
            if isinstance(out, torch.Tensor):  # an attribute that is a view, such as a transposed matrix
                self._sources.mark(out, self._sources.find((*args, out)))
            return out
        given = (*args, *kwargs.values())
        if self.casts is not None:
            args, kwargs = self.casts.apply(kind, args, kwargs, lambda *call: self.run(torch.Tensor.to, call, {}))
        sources = self._sources.find((*args, *kwargs.values()))
        call = self._call = self._make(kind, StepPhase.FORWARD, self.layers[-1], sources)
        begin = count_nodes()
        try:
            with use_fused_attention(kind, on_gpu=self._on_gpu):
                out = give_single_precision(self.casts, kind, func, args)(*args, **kwargs)
        except Exception:
            if self.phase is StepPhase.BACKWARD and call.kernels:  # the last call of a recomputed block
                self._describe(call, list(list_tensors(given)), None)
                self._keep(call)
            self.failed = self.failed or (
                kind,
                tuple(tuple(each.shape) for each in list_tensors(given)),
            )
            raise
        finally:
            self._call = None
        grown = count_nodes() > begin
        if call.kernels or grown:
            self._describe(call, list(list_tensors(given)), out)
            call.attributes.update(find_attributes(kind, args, kwargs))
            if grown:
                self._starts.append(begin)
                self._ends.append(count_nodes())
                self._calls.append(call)
        call.constant = creates(kind) or self._are_constant(given)
        if call.constant:
            self._constants.add(call.number)
        if out is None or (args and out is args[0]):
            self._sources.mark_changed(args[0] if args else None, {call.number} if call.kernels else sources)
        else:
            self._sources.mark(out, {call.number} if call.kernels else sources)
        if call.kernels:
            self._keep(call)
        return out

    def _are_constant(self, given: Sequence[Any]) -> bool:
        """Whether tensors depend on no parameter and no input without data."""
        found = False
        for each in list_tensors(given):
            sources = self._sources.find((each,))
            if not (sources <= self._constants if sources else is_known(each)):
                return False
            found = True
        return found

    def _make(self, kind: str, phase: StepPhase, layer: str, sources: frozenset[int] = NOTHING) -> Record:
        self._count += 1
        return Record(kind=kind, phase=phase, layer=layer, number=self._count - 1, sources=sources)

    def _merge(self, record: Record, other: Record) -> None:
        """Make a record part of another one."""
        other.add(KernelCost(record.flops, record.bytes_moved, record.kernels, record.unknown, record.products))
        other.sources |= record.sources
        self.merged[record.number] = other.number

    def _describe(self, call: Record, given: Sequence[torch.Tensor], out: Any) -> None:
        result = next(list_tensors((out,)), given[0] if given else None)
        call.inputs = tuple(tuple(each.shape) for each in given)
        own = [each for each in given if id(each) in self._names]
        call.parameters = sum(each.numel() for each in own)
        call.input_gradient = any(each.requires_grad and id(each) not in self._names for each in given)
        if result is not None:
            call.output = tuple(result.shape)
            call.dtype = str(result.dtype).removeprefix("torch.")
            call.itemsize = result.element_size()
        if self.phase is StepPhase.BACKWARD:
            call.attributes["recomputed"] = 1

    def _keep(self, call: Record) -> None:
        """Keep a call; counters join the next call, constants become one operator, a random mask joins its product."""
        if self._counter is not None:
            call.add(self._counter)
            self._counter = None
        if call.kind == "__iadd__" and call.inputs == ((),) and call.dtype.startswith("int"):
            self._counter = KernelCost(call.flops, call.bytes_moved, call.kernels)
            return
        before = self.records[-1] if self.records else None
        if before is not None and before.constant:
            if call.constant:
                self._merge(call, before)
                return
            if before.kind == "bernoulli_" and call.kind == "__mul__":
                call.kind = before.kind
                self._merge(before, call)
                self.records.pop()
        self.records.append(call)
        if self.phase is StepPhase.BACKWARD:
            self._recomputed.setdefault((call.kind, call.layer, call.inputs), []).append(call.number)

    # ATen calls

    def find_cost(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> KernelCost | None:
        """The cost of an ATen call; None if it runs no kernel."""
        return cost_kernel(func, args, kwargs, out)

    def add(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Record the cost of an ATen call, if it computes."""
        kernel = self.find_cost(func, args, kwargs, out)
        if self._call is not None:
            if kernel is not None and is_fused_cast(self._call.kind, func):
                self._call.bytes_moved += discount_cast(args[0], out)
            elif kernel is not None:
                self._add_forward(self._call, func, args, kernel)
        elif self.phase is not StepPhase.FORWARD:
            sources = self._sources.find((*args, *kwargs.values()))
            if kernel is None:
                if sources:
                    self._sources.mark(out, sources)
            elif self.phase is StepPhase.BACKWARD:
                self._sources.mark(out, {self._add_backward(func, args, kernel, next(list_tensors((out,))), sources)})
            else:
                self._add_update(func, args, kwargs, out, kernel, sources)

    def _add_forward(self, call: Record, func: Any, args: Sequence[Any], kernel: KernelCost) -> None:
        node = count_nodes() - 1
        if not call.kernels:
            call.first_node = node
        call.last_node = node
        call.add(kernel)
        if func is _aten.clone.default and call.kind in ACTIVATIONS:
            call.attributes["copied"] = 1  # in place, but the backward phase needs the old values
        names = _ATTRIBUTES.get(func)
        if names is not None:
            call.attributes.update(_read_attributes(names, args))

    def _add_backward(
        self, func: Any, args: Sequence[Any], kernel: KernelCost, out: torch.Tensor, sources: frozenset[int]
    ) -> int:
        """Add an ATen call of the backward phase; returns the number of the record it belongs to."""
        node = torch._C._current_autograd_node()
        number = node._sequence_nr() if node is not None else _NO_NODE
        if number >= _NO_NODE:
            self.flush()
            self.records.append(self._build_accumulation(node, kernel, out, sources))
            return self.records[-1].number
        call = self._find_call(number, node)
        sources = frozenset(
            each for each in sources if each >= self._first_backward
        )  # without tensors saved by forward calls
        if func in _ADDITIONS and call is not None and call.kind in RECURRENT:  # part of one kernel over all time steps
            return self._find_backward(call, number, node, out).number
        if func in _ADDITIONS:
            record = self._build_accumulation(None, kernel, out, sources, call)
            self._trailing.append((call, record))
            return record.number
        self.flush(call)
        record = self._find_backward(call, number, node, out)
        if is_fused_cast(record.kind, func):
            record.bytes_moved += discount_cast(args[0], out)
        else:
            record.add(kernel)
        record.sources |= sources
        return record.number

    def flush(self, call: Record | None = None) -> None:
        """Additions after the last node of a call accumulate gradients; earlier ones belong to the call."""
        for owner, record in self._trailing:
            if owner is not None and owner is call and id(owner) in self._backward:
                self._merge(record, self._backward[id(owner)])
            else:
                self.records.append(record)
        self._trailing.clear()

    def _find_call(self, number: int, node: Any) -> Record | None:
        place = bisect_right(self._starts, number) - 1
        if place < 0 or (number >= self._ends[place] and isinstance(node, BackwardCFunction)):
            return None  # a function whose backward phase is the model's own code
        return self._calls[place]

    def find_running(self) -> tuple[str, str]:
        """The kind and the layer of the call that runs now, or whose backward does; no kind if there is none."""
        call = self._call
        node = torch._C._current_autograd_node() if call is None and self.phase is StepPhase.BACKWARD else None
        if node is not None:
            number = node._sequence_nr()
            call = self._find_call(number, node) if number < _NO_NODE else None
        return (call.kind, call.layer) if call is not None else ("", self.layers[-1])

    def _find_backward(self, call: Record | None, number: int, node: Any, out: torch.Tensor) -> Record:
        key = id(call) if call is not None else -number - 1
        record = self._backward.get(key)
        if record is None:
            if call is None:
                place = bisect_right(self._starts, number) - 1
                layer = self._calls[place].layer if place >= 0 else ""
                record = self._make(node.name(), StepPhase.BACKWARD, layer)
                record.dtype = str(out.dtype).removeprefix("torch.")
                record.output = tuple(out.shape)
            else:
                self._count += 1
                record = replace(
                    call,
                    phase=StepPhase.BACKWARD,
                    number=self._count - 1,
                    sources=frozenset({self._find_kept(call)}),
                    flops=0.0,
                    bytes_moved=0.0,
                    kernels=0,
                    unknown=0,
                    products=0.0,
                    attributes=dict(call.attributes),
                )
            self._backward[key] = record
            self.records.append(record)
        return record

    def _find_kept(self, call: Record) -> int:
        """Number of the record whose results the backward of a call reads: the call, or its recomputation."""
        again = self._recomputed.get((call.kind, call.layer, call.inputs))
        return again.pop() if again else call.number

    def _build_accumulation(
        self, node: Any, kernel: KernelCost, out: torch.Tensor, sources: frozenset[int], owner: Record | None = None
    ) -> Record:
        name = self._names.get(id(getattr(node, "variable", None)), "")
        layer = owner.layer if owner is not None else name.rpartition(".")[0]
        record = self._make(ACCUMULATE, StepPhase.BACKWARD, layer, sources)
        record.inputs = (tuple(out.shape),) * 2
        record.output = tuple(out.shape)
        record.dtype = str(out.dtype).removeprefix("torch.")
        record.add(kernel)
        return record

    def _add_update(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Any,
        kernel: KernelCost,
        sources: frozenset[int],
    ) -> None:
        given = list(list_tensors((*args, *kwargs.values())))
        first = given[0] if given else next(list_tensors((out,)))
        tensors = len(args[0]) if args and isinstance(args[0], (list, tuple)) else 1
        record = self._make(func.overloadpacket.__name__, StepPhase.UPDATE, "", sources)
        record.inputs = tuple(tuple(each.shape) for each in given)
        record.output = tuple(first.shape)
        record.attributes = {"tensors": tensors} if tensors > 1 else {}
        record.dtype = str(first.dtype).removeprefix("torch.")
        record.parameters = sum(each.numel() for each in given if id(each) in self._names)
        record.add(kernel)
        self.records.append(record)
        self._sources.mark(out if out is not None else args[:1], {record.number})

    def repeat_update(self, records: Sequence[Record], parameter: torch.Tensor, layer: str) -> Iterator[Record]:
        """The updates of an equal parameter, repeated for this one, which reads its own gradient."""
        numbers = {record.number: self._count + place for place, record in enumerate(records)}
        self._count += len(records)
        ready = self.gradients[id(parameter)].ready
        for record in records:
            sources = frozenset(numbers.get(each, ready) for each in record.sources)
            yield replace(record, layer=layer, number=numbers[record.number], sources=sources)

    # Between the phases

    def begin_backward(self) -> None:
        """Start the backward phase."""
        self.forget_casts()
        self.phase = StepPhase.BACKWARD
        self._first_backward = self._count
        self.gradients.clear()

    def note_gradient(self, parameter: torch.Tensor) -> None:
        """Note that the gradient of a parameter is ready."""
        gradient = parameter.grad
        assert gradient is not None
        last = self._trailing[-1][1].number if self._trailing else self.records[-1].number if self.records else -1
        made = max(self._sources.find((gradient,)), default=last)
        self.gradients[id(parameter)] = ReadyGradient(gradient.numel() * gradient.element_size(), made)

    def forget_casts(self) -> None:
        """Forget cast parameters at the end of a phase."""
        if self.casts is not None:
            self.casts.forget()

    def forget_graph(self) -> None:
        """Forget the calls of this batch at the end of its backward phase."""
        self.flush()
        self.forget_casts()
        self._starts.clear()
        self._ends.clear()
        self._calls.clear()
        self._backward.clear()
        self._recomputed.clear()


class CallMode(TorchFunctionMode):
    """Passes the outermost calls of the model's code to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record the call."""
        return self._recorder.run(func, args, kwargs or {})


class KernelMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Passes ATen calls to a recorder."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record the call."""
        if func is DEVICE:
            return args[0].device
        out = func(*args, **(kwargs or {}))
        self._recorder.add(func, args, kwargs or {}, out)
        return out


def count_nodes() -> int:
    """Nodes that autograd has made in this thread, which is the sequence number of the next one."""
    return int(torch._C._autograd._get_sequence_nr())


_kinds: dict[Any, str | None] = {}
_NOT_RECORDED = frozenset(
    {"__get__", "__set__", "dim", "size", "numel", "stride", "is_contiguous", "requires_grad_", "is_floating_point"}
)


def find_kind(func: Any) -> str | None:
    """The kind of operator that a call is; None for a question about a tensor."""
    try:
        return _kinds[func]
    except KeyError:
        packet = getattr(func, "overloadpacket", func)
        name = getattr(packet, "__name__", type(packet).__name__)
        own = getattr(packet, "_qualified_op_name", "aten::")  # of an operator that an extension defines
        kind = _kinds[func] = (
            None if name in _NOT_RECORDED else normalize_name(name if own.startswith("aten::") else own)
        )
        return kind


_CONVOLUTION = {3: "stride", 4: "padding", 5: "dilation", 6: "transposed", 8: "groups"}
_WINDOW = {1: "kernel_size", 2: "stride", 3: "padding"}
_ATTRIBUTES: dict[Any, dict[int, str]] = {
    _aten.convolution.default: _CONVOLUTION,
    _aten.max_pool2d_with_indices.default: _WINDOW,
    _aten.avg_pool2d.default: _WINDOW,
    _aten._adaptive_avg_pool2d.default: {1: "output_size"},
    _aten._softmax.default: {1: "dim"},
    _aten.cat.default: {1: "dim"},
    _aten.mean.dim: {1: "dim"},
    _aten.constant_pad_nd.default: {1: "pad"},
    _aten.roll.default: {1: "shifts", 2: "dims"},
}


def _read_attributes(names: Mapping[int, str], args: Sequence[Any]) -> Iterator[tuple[str, Attribute]]:
    for place, name in names.items():
        value = args[place] if place < len(args) else None
        if isinstance(value, (list, tuple)) and value:
            yield name, tuple(int(each) for each in value)
        elif isinstance(value, int) and not (name == "transposed" and not value):
            yield name, int(value)
