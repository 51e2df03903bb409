"""ATen calls whose result, or its shape, depends on unknown values, or which cannot run without data otherwise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from foretell.workloads.known_tensors import is_known
from foretell.workloads.unknown_values import find_indices, mark_mean

_aten = torch.ops.aten


class Reader(Protocol):
    """Reads values, and notes what it assumed."""

    def assume(self, what: str) -> None:
        """Note what was assumed."""

    def read(self, tensor: torch.Tensor) -> Any:
        """The value of a tensor with one element."""


class Runner(Protocol):
    """Runs calls without data."""

    def skip(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a call without data."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call, and those who run it."""

    reader: Reader
    runner: Runner
    func: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the same function without data."""
        return self.runner.skip(self.func, args, kwargs)

    def find_positions(self, mask: torch.Tensor) -> torch.Tensor:
        """The positions of the elements of a mask that are set, one row each."""
        if is_known(mask):
            return mask.nonzero()
        positions = find_indices(mask)
        share = len(positions) / max(mask.numel(), 1)
        self.reader.assume(f"of {mask.numel():,} values that are unknown, {share:.0%} were assumed to be set")
        return positions


def _read(call: Call) -> Any:
    return call.reader.read(call.args[0])


def _equal(call: Call) -> bool:
    call.reader.assume("values that are unknown without running the step were assumed to be equal")
    return True


def _nonzero(call: Call) -> torch.Tensor:
    return call.find_positions(call.args[0])


def _select(call: Call) -> Any:
    shape = torch.broadcast_shapes(*(each.shape for each in call.args[:2]))  # type: ignore[no-untyped-call]
    data, mask = (each.expand(shape) for each in call.args[:2])
    indices = list(call.find_positions(mask).unbind(1))
    return call.runner.skip(_aten.index.Tensor, (data, indices), {})


def _index(call: Call) -> Any:
    """A mask as index is replaced by the positions it selects."""
    data, indices, *rest = call.args
    replaced: list[Any] = []
    for each in indices:
        if isinstance(each, torch.Tensor) and each.dtype in (torch.bool, torch.uint8):
            replaced += call.find_positions(each).unbind(1)
        else:
            replaced.append(each)
    if rest and isinstance(rest[0], torch.Tensor):
        replaced = _fit(replaced, rest[0], data)
    return call.run(data, replaced, *rest, **call.kwargs)


def _fit(indices: list[Any], values: torch.Tensor, data: torch.Tensor) -> list[Any]:
    """As many positions as there are values, if these are more than one for each."""
    first = next((each for each in indices if each is not None), None)
    kept = data.dim() - len(indices)
    if first is None or first.dim() != 1 or values.dim() <= kept or values.shape[0] in (1, len(first)):
        return indices
    places = torch.arange(values.shape[0]) % max(len(first), 1)
    return [each if each is None or not len(each) else each[places] for each in indices]


def _repeat(call: Call) -> torch.Tensor:
    size = call.kwargs.get("output_size")
    repeats = call.args[0]
    if size is None:
        call.reader.assume("repetitions that are unknown without running the step were assumed to be 1 each")
        size = repeats.numel()
    positions: torch.Tensor = torch.arange(size) * repeats.numel() // max(size, 1)
    return positions


def _unique(call: Call) -> tuple[Any, ...]:
    call.reader.assume("values that are unknown without running the step were assumed to be all different")
    data, name = call.args[0], call.func.overloadpacket.__name__
    along = call.args[1] if name == "unique_dim" else None
    values = data.clone() if along is not None else data.flatten().clone()
    count = data.shape[along] if along is not None else data.numel()
    inverse = torch.arange(count)
    return values, inverse if along is not None else inverse.view(data.shape), torch.ones_like(inverse)


def _count(call: Call) -> torch.Tensor:
    least = call.kwargs.get("minlength", call.args[2] if len(call.args) > 2 else 0)
    if not least:
        call.reader.assume("the largest of the values to count is unknown and was assumed to be 1")
    data = call.args[0]
    out: torch.Tensor = call.runner.skip(_aten.new_zeros.default, (data, [max(least, 2)]), {"dtype": torch.int64})
    mark_mean(out, data.numel() / out.numel())
    return out


def _pack(call: Call) -> tuple[Any, ...]:
    """``pack_padded_sequence``: which rows remain depends on the lengths, not on the data."""
    data, lengths, first = call.args
    if not is_known(lengths):
        length = data.shape[1 if first else 0]
        call.reader.assume(f"lengths that are unknown without running the step were assumed to be {length}")
        lengths = torch.full(lengths.shape, length)
    small, batches = call.func(torch.empty(*data.shape[:2], 1), lengths, first)
    return call.runner.skip(_aten.new_empty.default, (data, [len(small), *data.shape[2:]]), {}), batches


def _unpack(call: Call) -> tuple[Any, ...]:
    data, batches, first, _padding, total = call.args
    small, lengths = call.func(torch.empty(data.shape[0], 1), batches, first, 0.0, total)
    return call.runner.skip(_aten.new_empty.default, (data, [*small.shape[:2], *data.shape[1:]]), {}), lengths


def _pack_backward(call: Call) -> Any:
    return call.runner.skip(_aten.new_zeros.default, (call.args[0], list(call.args[1])), {})


def _grouped(call: Call) -> torch.Tensor:
    """A product of each group of rows with a matrix of its own, in any type: CPUs and some GPUs take more than one."""
    first, second = call.args[:2]
    groups = call.kwargs.get("offs", call.args[2] if len(call.args) > 2 else None)
    shape = [first.shape[-2], second.shape[-1]]
    if first.dim() == second.dim():
        shape = [len(groups) if first.dim() == 2 else first.shape[0], *shape]
    dtype = call.kwargs.get("out_dtype") or first.dtype
    made: torch.Tensor = call.runner.skip(_aten.new_empty.default, (first, shape), {"dtype": dtype})
    return made


def _ctc(call: Call) -> tuple[Any, ...]:
    scores, targets, _, lengths = call.args[:4]
    if isinstance(lengths, torch.Tensor):
        longest = int(lengths.max()) if is_known(lengths) and len(lengths) else targets.shape[-1]
    else:
        longest = max(lengths, default=0)
    batch, length = scores.shape[1], scores.shape[0]
    made = [(batch,), (batch, length, 2 * longest + 1)]
    return tuple(call.runner.skip(_aten.new_empty.default, (scores, list(shape)), {}) for shape in made)


def _ctc_backward(call: Call) -> Any:
    return call.runner.skip(_aten.empty_like.default, (call.args[1],), {})


READING: dict[Any, Callable[[Call], Any]] = {
    _aten._local_scalar_dense.default: _read, _aten.equal.default: _equal, _aten.nonzero.default: _nonzero,
    _aten.masked_select.default: _select, _aten.index.Tensor: _index, _aten.index_put.default: _index,
    _aten.index_put_.default: _index, _aten._index_put_impl_.default: _index,
    _aten.repeat_interleave.Tensor: _repeat, _aten._unique2.default: _unique, _aten.unique_dim.default: _unique,
    _aten.unique_consecutive.default: _unique, _aten.bincount.default: _count,
    _aten._pack_padded_sequence.default: _pack, _aten._pad_packed_sequence.default: _unpack,
    _aten._pack_padded_sequence_backward.default: _pack_backward, _aten._grouped_mm.default: _grouped,
    _aten._ctc_loss.Tensor: _ctc, _aten._ctc_loss.default: _ctc,
    _aten._ctc_loss_backward.Tensor: _ctc_backward, _aten._ctc_loss_backward.default: _ctc_backward,
}  # fmt: skip
