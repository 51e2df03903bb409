"""Runs code of PyTorch without the data of large tensors: small known values are computed, all others have no data.

``HybridTensors`` is entered for as long as this is to last, for example around a training step of a user's script::

    with HybridTensors() as tensors:
        loss = model(inputs)
        loss.backward()
        optimizer.step()
    print(tensors.notes)

Within, every call of PyTorch whose tensors are *known* really runs. Known are tensors with data that are small, need no
gradient and depend on nothing unknown: masks, labels, lengths, positions, random draws, and what is computed from them.
All other calls run without data, on ``FakeTensor``, which has a shape, a type and the device "cpu", as real tensors
have: parameters with data may be mixed with tensors without. What such a call writes into a tensor with data is not
written; that tensor keeps its values and counts as unknown from then on. There is one device: ``to``, ``cuda`` and
``device=`` move nothing.

Where the code reads an unknown value (``item``, ``if``, ``tolist``, ``numpy``), it gets an example, see
``unknown_values``; where a shape depends on unknown values (``nonzero``, a mask as index), it gets an assumed one.
Both are kept as notes with the line of the code. To record what runs, enter ``KernelMode`` and ``CallMode`` within.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.core.errors import WorkloadError
from foretell.workloads.known_tensors import (
    DEVICE,
    find_fake_mode,
    forget_conversions,
    has_data,
    is_known,
    is_small,
    list_tensors,
    mark_unknown,
    remove_data,
)
from foretell.workloads.unknown_shapes import READING, Call
from foretell.workloads.unknown_values import build_example, derive_mean, read_example
from foretell.workloads.user_code import find_line

EMPTY_LIMIT = 2**10  # of those that are made without values
READS = 10_000  # of unknown values in one line, before it counts as a loop without end
_WITHOUT_DATA = "_foretell_without_data"


class HybridTensors:
    """Runs the code within it as described above. ``notes`` has what was assumed, by line, in order."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}
        self._reads: Counter[str] = Counter()
        self._quiet = 0
        self._stack = ExitStack()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed of unknown values."""
        return tuple(self._notes)

    def __enter__(self) -> Self:
        """Start to run calls without data."""
        with ExitStack() as stack:
            stack.enter_context(_without_cpu_kernels())
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # CPUs have kernels of their own
            stack.enter_context(_Calls(self))
            stack.enter_context(_Kernels(self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        """Continue as before."""
        self._stack.close()

    def note(self, text: str) -> None:
        """Keep a note."""
        self._notes[text] = None

    def assume(self, what: str) -> None:
        """Note what was assumed in the line of the user's code that runs now.

        Raises:
            WorkloadError: This line asked too often: it waits for a value that never comes.
        """
        if self._quiet or torch._C._current_autograd_node() is not None:  # as in the forward phase
            return
        line = find_line()
        self.note(f"{line or 'the model'}: {what}")
        self._reads[line] += 1
        if self._reads[line] > READS:
            raise WorkloadError(
                f"{line or 'the model'}: the step depends on tensor values, which are unknown without running it: "
                f"read {READS:,} times in one step. Limit the loop, or move it out of forward."
            )

    def read(self, tensor: torch.Tensor) -> Any:
        """The value of a tensor with one element, or an example."""
        if has_data(tensor):
            return tensor.item()
        value = read_example(tensor)
        self.assume(f"a value that is unknown without running the step was assumed to be {value}")
        return value

    def read_all(self, tensor: torch.Tensor) -> torch.Tensor:
        """The values of a tensor, or examples."""
        if has_data(tensor):
            return tensor.detach()
        self.assume("values that are unknown without running the step were replaced by examples")
        return build_example(tensor)


@contextmanager
def _without_cpu_kernels() -> Iterator[None]:
    """Without the CPU's own operators, which GPUs do not have."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with torch.backends.nnpack.flags(enabled=False):  # lays out gradients otherwise, for some batches
            yield
    finally:
        torch.backends.mkldnn.enabled = before


class _Calls(TorchFunctionMode):
    """What cannot be done below the functions of PyTorch: values leave it, and there is one device."""

    def __init__(self, tensors: HybridTensors) -> None:
        super().__init__()
        self._tensors = tensors

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call."""
        rule = _CALLS.get(func)
        if rule is not None:
            return rule(self._tensors, func, args, kwargs or {})
        if kwargs and kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **(kwargs or {}))


def _stay(_tensors: HybridTensors, _func: Any, args: Sequence[Any], _kwargs: Mapping[str, Any]) -> Any:
    return args[0]


def _convert(_tensors: HybridTensors, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``to`` with a type only."""
    given = [*args[1:], *(kwargs[name] for name in ("dtype", "other") if name in kwargs)]
    given = [each.dtype if isinstance(each, torch.Tensor) else each for each in given]
    dtype = next((each for each in given if isinstance(each, torch.dtype)), None)
    named = {name: value for name, value in kwargs.items() if name in ("copy", "memory_format")}
    return func(args[0], dtype or args[0].dtype, **named) if dtype is not None or named else args[0]


def _to_array(tensors: HybridTensors, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(tensors.read_all(args[0]), *args[1:], **kwargs)


def _format(tensors: HybridTensors, _func: Any, args: Sequence[Any], _kwargs: Mapping[str, Any]) -> str:
    return format(repr(args[0]) if args[0].dim() else tensors.read(args[0]), args[1])


def _create(tensors: HybridTensors, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``torch.tensor`` of numbers, some of which may be tensors."""
    named = {**kwargs, "device": "cpu"} if kwargs.get("device") is not None else dict(kwargs)
    if args and isinstance(args[0], (list, tuple)):
        args = (_read_numbers(tensors, args[0]), *args[1:])
    return func(*args, **named)


def _read_numbers(tensors: HybridTensors, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_read_numbers(tensors, each) for each in value]
    return tensors.read_all(value).tolist() if isinstance(value, torch.Tensor) else value


def _check(tensors: HybridTensors, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``allclose`` and ``equal`` are checks, which hold."""
    if any(not is_known(each) for each in args[:2]):
        tensors.assume("values that are unknown without running the step were assumed to be equal")
        return True
    return func(*args, **kwargs)


def _quietly(tensors: HybridTensors, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """PyTorch itself checks values, which the user's code does not depend on."""
    tensors._quiet += 1
    try:
        return func(*args, **kwargs)
    finally:
        tensors._quiet -= 1


_CALLS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.cuda: _stay, torch.Tensor.cpu: _stay, torch.Tensor.to: _convert, torch.Tensor.numpy: _to_array,
    torch.Tensor.tolist: _to_array, torch.Tensor.__array__: _to_array, torch.Tensor.__format__: _format,
    torch.tensor: _create, torch.as_tensor: _create, torch.asarray: _create, functional.one_hot: _quietly,
    torch.allclose: _check, torch.Tensor.allclose: _check, torch.equal: _check, torch.Tensor.equal: _check,
}  # fmt: skip


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each ATen call for real or without data."""

    def __init__(self, tensors: HybridTensors) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tensors = tensors
        self._fake = find_fake_mode()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call."""
        if func is DEVICE:
            return args[0].device
        kwargs = kwargs or {}
        form = _forms.get(func) or _find_form(func)
        given = list(list_tensors((args, kwargs)))
        if form.view and given and not isinstance(given[0], FakeTensor):
            return func(*args, **kwargs)
        if all(is_known(each) for each in given):
            return self._compute(func, form, given, args, kwargs)
        if form.like and torch._C._current_autograd_node() is None:  # in the backward phase nobody reads values
            return self._make_like(func, form, args, kwargs)
        rule = READING.get(func)
        if rule is not None:
            return rule(Call(self._tensors, self, func, args, kwargs))
        return self.skip(func, args, kwargs)

    def _compute(
        self, func: Any, form: "_Form", given: Sequence[torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Really run a call, unless its result is large."""
        kwargs = form.place(kwargs)
        if not form.cheap(given) and not all(is_small(each) for each in list_tensors(self._try(func, args, kwargs))):
            return self.skip(func, args, kwargs)
        out = func(*args, **kwargs)
        if func.overloadpacket.__name__ in _EMPTY:
            return remove_data(out) if out.numel() > EMPTY_LIMIT else out.zero_()
        return out

    def _make_like(self, func: Any, form: "_Form", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Really make a tensor that has only its form from another one, if it is small."""
        out = self.skip(func, args, kwargs)
        first, *rest = args
        if not is_small(out) or not is_small(first) or any(not is_known(each) for each in list_tensors(rest)):
            return out
        first = torch.empty_strided(first.size(), first.stride(), dtype=first.dtype)
        return self._compute(func, form, [first], (first, *rest), kwargs)

    def _try(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The results of a call without data; nothing if they depend on data."""
        try:
            with self._fake:
                return func(*_strip(args, {}), **_strip(kwargs, {}))
        except (RuntimeError, NotImplementedError):
            return None

    def skip(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a call without data."""
        form = _forms.get(func) or _find_form(func)
        kwargs = form.place(kwargs)
        real: dict[int, torch.Tensor] = {}  # by the identity of the tensor without data that replaces it
        bare, named = _strip(args, real), _strip(kwargs, real)
        with self._fake:
            out = func(*bare, **named)
        forget_conversions()
        if real:
            out = _restore(out, real)
            for value in form.find_changed(args, kwargs):
                mark_unknown(value)
        derive_mean(func, args, out)
        return out


@dataclass(frozen=True, slots=True)
class _Form:
    """What the schema of an ATen call says about it."""

    view: bool  # also if it changes the form of a tensor in position
    device: bool
    like: bool  # makes a tensor of the form of another one
    pointwise: bool
    changed: tuple[tuple[int, str], ...]  # positions and names of the arguments it changes

    def find_changed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
        """The tensors it changes."""
        for place, name in self.changed:
            yield from list_tensors((args[place] if place < len(args) else kwargs.get(name),))

    def place(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments by name, on the one device."""
        named = self.device and kwargs.get("device") is not None
        return {**kwargs, "device": torch.device("cpu")} if named else kwargs

    def cheap(self, given: Sequence[torch.Tensor]) -> bool:
        """Whether the result cannot be large."""
        return bool(self.view or self.changed or (self.pointwise and sum(each.dim() for each in given) < 2))


_forms: dict[Any, _Form] = {}
_EMPTY = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"})


def _find_form(func: Any) -> _Form:
    arguments = func._schema.arguments
    changed = tuple(
        (place, each.name) for place, each in enumerate(arguments) if each.alias_info and each.alias_info.is_write
    )
    view = func.is_view or torch.Tag.inplace_view in func.tags
    name = func.overloadpacket.__name__
    form = _forms[func] = _Form(
        view=view,
        device=any(each.name == "device" for each in arguments),
        like=name.endswith("_like") or name.startswith("new_"),
        pointwise=torch.Tag.pointwise in func.tags,
        changed=changed,
    )
    return form


def _strip(value: Any, real: dict[int, torch.Tensor]) -> Any:
    """The same arguments without data; ``real`` gets the tensors that were replaced."""
    if isinstance(value, torch.Tensor):
        if isinstance(value, FakeTensor):
            return value
        bare = getattr(value, _WITHOUT_DATA, None)
        if bare is None or bare.size() != value.size() or bare.stride() != value.stride():
            bare = remove_data(value)
            setattr(value, _WITHOUT_DATA, bare)
        real[id(bare)] = value
        return bare
    if isinstance(value, (list, tuple)):
        return type(value)(_strip(each, real) for each in value)
    return {name: _strip(each, real) for name, each in value.items()} if isinstance(value, dict) else value


def _restore(out: Any, real: Mapping[int, torch.Tensor]) -> Any:
    """The same results, with the tensors that were replaced."""
    if isinstance(out, torch.Tensor):
        return real.get(id(out), out)
    return type(out)(_restore(each, real) for each in out) if isinstance(out, (list, tuple)) else out
