"""Runs ATen calls on tensors that are too large to compute with: small calls compute, large ones return zeros.

A large result is memory that the machine provides only when it is read or written: its shape, strides, type and views
are real, its numbers are zero. Whole numbers and masks steer a script, so that they are computed up to a higher limit.
"""

import math
import mmap
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from foretell.workloads.known_tensors import list_tensors

ELEMENTS = 2**17  # of the largest tensor of a call that is computed
WHOLE_ELEMENTS = 2**25  # where no argument is a floating-point number
PRODUCTS = 1e7  # floating-point operations of a call that is computed
_RESERVE = 0x4000  # MAP_NORESERVE: https://man7.org/linux/man-pages/man2/mmap.2.html
_UNSUPPORTED = ("not implemented for", "not supported", "Could not run", "could not create a primitive")
_AS_THEY_ARE = frozenset({
    "_local_scalar_dense", "equal", "is_nonzero", "set_", "resize_", "resize_as_", "t_", "transpose_", "squeeze_",
    "unsqueeze_", "as_strided_", "detach_", "lift_fresh", "_unsafe_view", "alias_copy",
})  # fmt: skip  # read a number, or change the shape of a tensor


# Of calls that are for the profiler or for other processes, and run no kernel.
WITHOUT_KERNELS = frozenset({
    "prim", "profiler", "c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "fsdp", "streams",
})  # fmt: skip


def run_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call below PyTorch's functions: computed if it is small, else zeros of the right shapes."""
    if (
        getattr(func, "is_view", False)
        or func.namespace in WITHOUT_KERNELS
        or find_packet(func).__name__ in _AS_THEY_ARE
        or not (isinstance(func, torch._ops.OpOverload) or func in flop_registry)
    ):
        return func(*args, **kwargs)
    if kwargs.get("pin_memory"):  # which needs a GPU
        kwargs = {**kwargs, "pin_memory": False}
    given = list(list_tensors((*args, *kwargs.values())))
    if any(each.device.type == "meta" or each.layout is not torch.strided for each in given):
        return func(*args, **kwargs)
    if not _is_large(func, args, kwargs, given):
        try:
            return _keep_finite(func(*args, **kwargs), given)
        except (RuntimeError, NotImplementedError) as exc:  # half precision on a CPU, for some
            if not any(text in str(exc) for text in _UNSUPPORTED):
                raise
    return _run_without_data(func, args, kwargs)


_zeros_made: list[bool] = []  # not empty once a large result was not computed


def _keep_finite(out: Any, given: Sequence[torch.Tensor]) -> Any:
    """A loss that is no number because of the zeros it depends on is 0: scripts end when theirs is not finite."""
    if not _zeros_made or not given or not isinstance(out, torch.Tensor) or out.dim() or not out.is_floating_point():
        return out
    value = out.item()
    if math.isnan(value) or (math.isinf(value) and any(each.dim() for each in given)):  # others may be intended
        out.zero_()
    return out


def find_packet(func: Any) -> Any:
    """An operator without its overload; higher-order ones, such as flex attention, have none."""
    return getattr(func, "overloadpacket", func)


def _is_large(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[torch.Tensor]) -> bool:
    if find_packet(func) in flop_registry:
        return max((each.numel() for each in given), default=0) > ELEMENTS or _count_products(given) > PRODUCTS
    whole = bool(given) and not any(each.is_floating_point() or each.is_complex() for each in given)
    if not given:
        return _find_created(func, args, kwargs)
    return _largest(given) > (WHOLE_ELEMENTS if whole else ELEMENTS)


def _largest(given: Sequence[torch.Tensor]) -> int:
    """Elements of the largest argument, or of the result of arguments that are broadcast."""
    sizes = [each.numel() for each in given]
    if len(given) > 1:
        ranks = max(each.dim() for each in given)
        broadcast = [
            max((each.shape[rank - ranks + each.dim()] for each in given if rank - ranks + each.dim() >= 0), default=1)
            for rank in range(ranks)
        ]
        if all(each.dim() == ranks or each.numel() < ELEMENTS for each in given):
            sizes.append(math.prod(broadcast))
    return max(sizes)


def _count_products(given: Sequence[torch.Tensor]) -> float:
    """The order of magnitude of the floating-point operations of a product: its last two arguments are the factors."""
    matrices = [each for each in given if each.dim() >= 2]
    if len(matrices) < 2:
        return 0.0
    first, second = matrices[-2:]
    shared = first.shape[1] if first.dim() > 3 else first.shape[-1]
    batches = second.shape[0] if second.dim() == 3 and first.dim() == 3 else 1
    return 2.0 * first.numel() * second.numel() / max(1, shared * batches)


def _find_created(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call without tensors creates a large one."""
    size = next((each for each in args if isinstance(each, (list, tuple))), None)
    if size is None or not all(isinstance(each, int) for each in size):
        return False
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return math.prod(size) > (ELEMENTS if dtype.is_floating_point or dtype.is_complex else WHOLE_ELEMENTS)


class _Form(NamedTuple):
    """What a new tensor is, or which of the given ones it is."""

    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    given: int | None = None


_forms: dict[Hashable, Any] = {}  # of the results of calls, which layers and steps repeat
_MOST_FORMS = 20_000


def _run_without_data(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a call on tensors without data, and give zeros of the shapes that it returns."""
    given: dict[int, tuple[int, torch.Tensor]] = {}
    key = (func, torch.get_default_dtype(), _describe(args, given), _describe(kwargs, given))
    tensors = [tensor for _, tensor in given.values()]
    try:
        if key not in _forms:
            if len(_forms) > _MOST_FORMS:
                _forms.clear()
            _forms[key] = _find_forms(func, args, kwargs, tensors)
    except (RuntimeError, NotImplementedError):  # its shapes depend on values
        return func(*args, **kwargs)
    return _make(_forms[key], tensors)


def _describe(value: Any, given: dict[int, tuple[int, torch.Tensor]]) -> Hashable:
    """What the shapes of results depend on; collects the tensors."""
    if isinstance(value, torch.Tensor):
        place, _ = given.setdefault(id(value), (len(given), value))
        return place, value.size(), value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(_describe(each, given) for each in value)
    if isinstance(value, Mapping):
        return tuple((name, _describe(each, given)) for name, each in value.items())
    return type(value), value


def _find_forms(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> Any:
    stand_ins = {id(each): strip(each) for each in tensors}
    places = {id(stand_ins[id(each)]): place for place, each in enumerate(tensors)}

    def replace(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("meta")
        return stand_ins[id(value)] if isinstance(value, torch.Tensor) else value

    def note(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in places:
            return _Form(given=places[id(value)])
        return _Form(tuple(value.size()), value.stride(), value.dtype)

    given, named = tree_map(replace, (tuple(args), dict(kwargs)))
    named.pop("generator", None)  # of the CPU
    if not stand_ins:
        named["device"] = torch.device("meta")
    return tree_map(note, func(*given, **named))


def _make(form: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(form, _Form):
        return tensors[form.given] if form.given is not None else make_zeros(form.shape, form.strides, form.dtype)
    if isinstance(form, (list, tuple)):
        return type(form)(_make(each, tensors) for each in form)
    return form


def strip(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without data of the same shape, strides and type."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def make_zeros(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Zeros on the CPU with these shapes and strides; large ones take no memory until they are written."""
    if math.prod(shape) <= ELEMENTS:
        return torch.empty_strided(shape, strides, dtype=dtype, device="cpu").zero_()
    if not _zeros_made:
        _zeros_made.append(True)
    span = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    memory = mmap.mmap(-1, span * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _RESERVE)
    return torch.frombuffer(memory, dtype=dtype, count=span).as_strided(shape, strides)
