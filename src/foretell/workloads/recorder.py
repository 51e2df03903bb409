"""Writes down what PyTorch is asked to do while a step runs on tensors without data.

Two modes look on. One sees what the model's code calls, outermost calls only: these are the operators. The other sees
the framework's own computing calls below them: these are their costs. In the backward phase, the number of the node
that runs tells which forward call it belongs to. Tensors carry notes of whose results they are, through both phases.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.core.workload import Attribute, Operator, Shape, StepPhase
from foretell.workloads.costs import ACTIVATIONS, cost
from foretell.workloads.kernel_costs import Part, measure
from foretell.workloads.operator_names import spell
from foretell.workloads.precision import Casts
from foretell.workloads.tensor_notes import ASKING, NOTHING, Flow, find_value, is_constant, keep_constant

ACCUMULATE = "accumulate"  # two gradients of the same tensor are added
FUSED = frozenset({"dropout", "scaled_dot_product_attention"})  # devices have one kernel where meta tensors have many
_aten = torch.ops.aten
_ADDITIONS = frozenset({torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor})
_NO_NODE = 2**63  # what is no call of the forward phase has a number beyond


@dataclass(slots=True)
class Record:
    """An operator while it is written down."""

    kind: str
    phase: StepPhase
    layer: str
    number: int = -1  # in the order in which records are made
    sources: frozenset[int] = NOTHING  # numbers of those whose results it reads
    inputs: tuple[Shape, ...] = ()
    output: Shape = ()
    attributes: dict[str, Attribute] = field(default_factory=dict)
    dtype: str = "float32"
    parameters: int = 0
    input_gradient: bool = True
    flops: float = 0.0
    bytes_moved: float = 0.0
    kernels: int = 0
    constant: bool = False  # it makes something of nothing, as a mask
    itemsize: int = 4
    first_node: int = 0
    last_node: int = 0

    def add(self, part: Part) -> None:
        self.flops += part.flops
        self.bytes_moved += part.bytes_moved
        self.kernels += part.kernels

    def build(self) -> Operator:
        """The operator, which has the costs of a fused one where devices have it."""
        flops, moved, kernels = self.flops, self.bytes_moved, self.kernels
        attributes = tuple(sorted(self.attributes.items()))
        if self.kind in FUSED and kernels:
            flops, moved, kernels = cost(
                self.kind, self.phase, self.inputs, self.output, attributes, itemsize=self.itemsize
            )
        return Operator(
            kind=self.kind,
            phase=self.phase,
            inputs=self.inputs,
            output=self.output,
            attributes=attributes,
            dtype=self.dtype,
            flops=float(flops),
            bytes_moved=float(moved),
            parameters=self.parameters,
            kernels=kernels,
            input_gradient=self.input_gradient,
        )


class ReadyGradient(NamedTuple):
    """A parameter's gradient: its size, and the number of the record that made it."""

    bytes_: int
    ready: int


class Recorder:
    """What was called so far, in order."""

    def __init__(self, names: Mapping[int, str], casts: Casts | None = None) -> None:
        self.records: list[Record] = []
        self.phase = StepPhase.FORWARD
        self.layers: list[str] = [""]
        self.casts = casts
        self.first_node = _count_nodes()
        self.failed: tuple[str, tuple[Shape, ...]] | None = None
        self.joined: dict[int, int] = {}  # numbers of records that became part of another's
        self.gradients: dict[int, ReadyGradient] = {}  # of the batch at hand, by the parameter's identity
        self._flow = Flow()
        self._count = 0  # records made
        self._first_backward = 0  # number of the phase's first record
        self._recomputed: dict[tuple[Any, ...], list[int]] = {}
        self._names = names  # of parameters, by identity
        self._call: Record | None = None  # that runs now
        self._quiet = False  # what runs now is our own
        self._starts: list[int] = []  # first nodes of forward calls, and the calls
        self._calls: list[Record] = []
        self._backward: dict[int, Record] = {}
        self._trailing: list[tuple[Record | None, Record]] = []  # additions that may be a call's own
        self._carried: Part | None = None

    # Forward: what the code calls

    def run(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of the framework and write it down."""
        kind = _find_kind(func)
        if self._call is not None or self._quiet:
            return func(*args, **kwargs)
        if kind is None:
            out = func(*args, **kwargs)
            if isinstance(out, torch.Tensor):  # an attribute that is a view, as a matrix turned round
                self._flow.mark(out, self._flow.find((*args, out)))
            return out
        if kind in ASKING and (value := find_value(args[0])) is not None:
            return func(value, *args[1:], **kwargs)
        given = (*args, *kwargs.values())
        if self.casts is not None:
            args, kwargs = self.casts.apply(kind, args, kwargs, lambda *call: self.run(torch.Tensor.to, call, {}))
        sources = self._flow.find((*args, *kwargs.values()))
        call = self._call = self._make(kind, StepPhase.FORWARD, self.layers[-1], sources)
        begin = _count_nodes()
        try:
            out = func(*args, **kwargs)
        except Exception:
            if self.phase is StepPhase.BACKWARD and call.kernels:  # the last call of a block that is computed again
                self._describe(call, list(_tensors(given)), None)
                self._keep(call)
            self.failed = self.failed or (
                kind,
                tuple(tuple(each.shape) for each in _tensors(given)),
            )
            raise
        finally:
            self._call = None
        grown = _count_nodes() > begin
        if call.kernels or grown:
            self._describe(call, list(_tensors(given)), out)
            if kind == "multi_head_attention_forward":
                call.attributes["num_heads"] = kwargs.get("num_heads") or args[4]
            if grown:
                self._starts.append(begin)
                self._calls.append(call)
        if is_constant(kind, _tensors(given)):
            call.constant = True
            self._quiet = True
            keep_constant(func, kind, args, kwargs, out)
            self._quiet = False
        if out is None or (args and out is args[0]):
            self._flow.mark_changed(args[0] if args else None, {call.number} if call.kernels else sources)
        else:
            self._flow.mark(out, {call.number} if call.kernels else sources)
        if call.kernels:
            self._keep(call)
        return out

    def _make(self, kind: str, phase: StepPhase, layer: str, sources: frozenset[int] = NOTHING) -> Record:
        self._count += 1
        return Record(kind=kind, phase=phase, layer=layer, number=self._count - 1, sources=sources)

    def _join(self, record: Record, other: Record) -> None:
        """Make a record part of another."""
        other.add(Part(record.flops, record.bytes_moved, record.kernels))
        other.sources |= record.sources
        self.joined[record.number] = other.number

    def _describe(self, call: Record, given: Sequence[torch.Tensor], out: Any) -> None:
        result = next(_tensors((out,)), given[0] if given else None)
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
        """Counters join the call they count; what makes a mask is one operator; a random mask joins its product."""
        if self._carried is not None:
            call.add(self._carried)
            self._carried = None
        if call.kind == "__iadd__" and call.inputs == ((),) and call.dtype.startswith("int"):
            self._carried = Part(call.flops, call.bytes_moved, call.kernels)
            return
        before = self.records[-1] if self.records else None
        if before is not None and before.constant:
            if call.constant:
                self._join(call, before)
                return
            if before.kind == "bernoulli_" and call.kind == "__mul__":
                call.kind = before.kind
                self._join(before, call)
                self.records.pop()
        self.records.append(call)
        if self.phase is StepPhase.BACKWARD:
            self._recomputed.setdefault((call.kind, call.layer, call.inputs), []).append(call.number)

    # Below: what the framework runs

    def add(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Write down what one of the framework's own calls costs, if it computes."""
        part = None if self._quiet else measure(func, args, kwargs, out)
        if self._call is not None:
            if part is not None:
                self._add_forward(self._call, func, args, part)
        elif self.phase is not StepPhase.FORWARD and not self._quiet:
            sources = self._flow.find((*args, *kwargs.values()))
            if part is None:
                if sources:
                    self._flow.mark(out, sources)
            elif self.phase is StepPhase.BACKWARD:
                self._flow.mark(out, {self._add_backward(func, part, next(_tensors((out,))), sources)})
            else:
                self._add_update(func, args, kwargs, out, part, sources)

    def _add_forward(self, call: Record, func: Any, args: Sequence[Any], part: Part) -> None:
        node = _count_nodes() - 1
        if not call.kernels:
            call.first_node = node
        call.last_node = node
        call.add(part)
        if func is _aten.clone.default and call.kind in ACTIVATIONS:
            call.attributes["copied"] = 1  # in place, but the backward phase needs what was there
        names = _ATTRIBUTES.get(func)
        if names is not None:
            call.attributes.update(_read_attributes(names, args))

    def _add_backward(self, func: Any, part: Part, out: torch.Tensor, sources: frozenset[int]) -> int:
        """Number of the record that the call belongs to."""
        node = torch._C._current_autograd_node()
        number = node._sequence_nr() if node is not None else _NO_NODE
        if number >= _NO_NODE:
            self.flush()
            self.records.append(self._build_accumulation(node, part, out, sources))
            return self.records[-1].number
        call = self._find_call(number)
        sources = frozenset(each for each in sources if each >= self._first_backward)  # beside what forward calls kept
        if func in _ADDITIONS:
            record = self._build_accumulation(None, part, out, sources, call)
            self._trailing.append((call, record))
            return record.number
        self.flush(call)
        record = self._find_backward(call, number, node, out)
        record.add(part)
        record.sources |= sources
        return record.number

    def flush(self, call: Record | None = None) -> None:
        """Additions after a call's last node add up gradients; those before are its own."""
        for owner, record in self._trailing:
            if owner is not None and owner is call and id(owner) in self._backward:
                self._join(record, self._backward[id(owner)])
            else:
                self.records.append(record)
        self._trailing.clear()

    def _find_call(self, number: int) -> Record | None:
        place = bisect_right(self._starts, number) - 1
        return self._calls[place] if place >= 0 else None

    def _find_backward(self, call: Record | None, number: int, node: Any, out: torch.Tensor) -> Record:
        key = id(call) if call is not None else -number - 1
        record = self._backward.get(key)
        if record is None:
            if call is None:
                record = self._make(node.name(), StepPhase.BACKWARD, "")
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
                    attributes=dict(call.attributes),
                )
            self._backward[key] = record
            self.records.append(record)
        return record

    def _find_kept(self, call: Record) -> int:
        """Number of the record that made what a call's backward reads: the call's own, unless it is computed again."""
        again = self._recomputed.get((call.kind, call.layer, call.inputs))
        return again.pop() if again else call.number

    def _build_accumulation(
        self, node: Any, part: Part, out: torch.Tensor, sources: frozenset[int], owner: Record | None = None
    ) -> Record:
        name = self._names.get(id(getattr(node, "variable", None)), "")
        layer = owner.layer if owner is not None else name.rpartition(".")[0]
        record = self._make(ACCUMULATE, StepPhase.BACKWARD, layer, sources)
        record.inputs = (tuple(out.shape),) * 2
        record.output = tuple(out.shape)
        record.dtype = str(out.dtype).removeprefix("torch.")
        record.add(part)
        return record

    def _add_update(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Any,
        part: Part,
        sources: frozenset[int],
    ) -> None:
        given = list(_tensors((*args, *kwargs.values())))
        first = given[0] if given else next(_tensors((out,)))
        tensors = len(args[0]) if args and isinstance(args[0], (list, tuple)) else 1
        record = self._make(func.overloadpacket.__name__, StepPhase.UPDATE, "", sources)
        record.inputs = tuple(tuple(each.shape) for each in given)
        record.output = tuple(first.shape)
        record.attributes = {"tensors": tensors} if tensors > 1 else {}
        record.dtype = str(first.dtype).removeprefix("torch.")
        record.parameters = sum(each.numel() for each in given if id(each) in self._names)
        record.add(part)
        self.records.append(record)
        self._flow.mark(out if out is not None else args[:1], {record.number})

    def repeat_update(self, records: Sequence[Record], parameter: torch.Tensor, layer: str) -> Iterator[Record]:
        """What was done to an equal parameter, done to this one: it reads its own gradient."""
        numbers = {record.number: self._count + place for place, record in enumerate(records)}
        self._count += len(records)
        ready = self.gradients[id(parameter)].ready
        for record in records:
            sources = frozenset(numbers.get(each, ready) for each in record.sources)
            yield replace(record, layer=layer, number=numbers[record.number], sources=sources)

    # Between the phases

    def begin_backward(self) -> None:
        """A forward phase has ended."""
        self.forget_casts()
        self.phase = StepPhase.BACKWARD
        self._first_backward = self._count
        self.gradients.clear()

    def note_gradient(self, parameter: torch.Tensor) -> None:
        """A parameter's gradient is ready."""
        gradient = parameter.grad
        assert gradient is not None
        last = self._trailing[-1][1].number if self._trailing else self.records[-1].number if self.records else -1
        made = max(self._flow.find((gradient,)), default=last)
        self.gradients[id(parameter)] = ReadyGradient(gradient.numel() * gradient.element_size(), made)

    def forget_casts(self) -> None:
        """A forward phase has ended."""
        if self.casts is not None:
            self.casts.forget()

    def forget_graph(self) -> None:
        """A backward phase has ended: the next batch has calls of its own."""
        self.flush()
        self.forget_casts()
        self._starts.clear()
        self._calls.clear()
        self._backward.clear()
        self._recomputed.clear()


class CallMode(TorchFunctionMode):
    """Shows a recorder the outermost calls."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Write the call down."""
        return self._recorder.run(func, args, kwargs or {})


class KernelMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Shows a recorder the framework's own calls."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Write the call down."""
        out = func(*args, **(kwargs or {}))
        self._recorder.add(func, args, kwargs or {}, out)
        return out


def _count_nodes() -> int:
    return int(torch._C._autograd._get_sequence_nr())


_kinds: dict[Any, str | None] = {}
_SILENT = frozenset(
    {"__get__", "__set__", "dim", "size", "numel", "stride", "is_contiguous", "requires_grad_", "is_floating_point"}
)


def _find_kind(func: Any) -> str | None:
    try:
        return _kinds[func]
    except KeyError:
        packet = getattr(func, "overloadpacket", func)
        name = getattr(packet, "__name__", type(packet).__name__)
        kind = _kinds[func] = None if name in _SILENT else spell(name)
        return kind


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(tuple(value.values()))


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
