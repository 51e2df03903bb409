"""Chooses the kernels that say most of a device in two minutes: of every kind, type and size."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TypeVar

import numpy as np

from foretell.core.devices import Device, list_precisions
from foretell.steps.kernels.kernel_calls import FLASH_2, Attention, Convolution, KernelCall, Product

_ITEM = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
_PREFERRED = ("bf16", "fp16", "fp8", "tf32", "fp32")  # what users train in most
_FEW = 2
# Shares of the kernels of the first type that are measured in others, where that is bf16.
_PARTS = {"fp16": 1 / 3, "fp8": 1 / 2, "tf32": 1 / 2}
_PRODUCT_PARTS = {"fp16": 1 / 6, "fp8": 1 / 2, "tf32": 1 / 4, "fp32": 1 / 3}
_ATTENTION_PARTS = {"fp16": 1 / 6, "fp32": 1 / 6}
_LONGEST_S = 0.1  # expected of one run, at a tenth of the peak
_MEMORY_SHARE = 0.3  # of the device that the tensors of a kernel may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass over memory to measure: an operator of PyTorch on a tensor, forward or backward."""

    kind: str
    rows: int
    row: int
    precision: str = "fp32"
    backward: bool = False

    @property
    def elements(self) -> int:
        """Of the tensor."""
        return self.rows * self.row


Chosen = KernelCall | Pass
Choice = TypeVar("Choice")

# Rows, columns and inner dimension, and the number of products in one kernel.
_SQUARES = tuple((size, size, size, 1) for size in (4096, 1024))
_MANY = ((512, 512, 64, 128), (512, 64, 512, 128), (128, 128, 64, 1024), (2048, 64, 2048, 32), (64, 64, 32, 4096))
_SPREAD = 500  # further products, spread over all sizes; all types and kinds together take about two minutes
# Of rows, columns and inner dimension. As many between two numbers as between the next two: a quarter has few rows,
# which memory limits and which are predicted well.
_SIZES = ((1, 128, 813, 5161, 32768), (64, 32768), (64, 32768))
_WHOLE = (64, 64, 64, 16)  # columns and inner dimension are multiples of one of these
_ATTENTIONS = 200  # spread over these sizes
_LENGTHS, _HEADS_IN_ALL, _FEWER = (16, 16384), (8, 2048), (2, 1024)  # of the whole batch; of queries than of keys
_QUERIES = ("all", "some", "all", "one")  # of a whole sequence, of a part of it, of one token
_GROUPS = (1, 1, 4, 1, 8)  # heads for each head of keys
_CONVOLUTIONS = (  # images, channels, filters, groups, size, kernel, stride
    *((32, 64, 64, 1, 56, 3, 1), (32, 256, 64, 1, 56, 1, 1), (32, 3, 64, 1, 224, 7, 2), (32, 512, 512, 1, 7, 3, 1)),
    *((32, 96, 96, 96, 56, 7, 1), (32, 128, 128, 1, 28, 3, 1), (32, 1024, 256, 1, 14, 1, 1)),
    *(
        (32, 256, 512, 1, 56, 1, 2),
        (32, 192, 192, 192, 28, 3, 1),
        (8, 256, 256, 1, 28, 3, 1),
        (64, 256, 256, 32, 28, 3, 1),
    ),
    *(
        (128, 64, 128, 1, 56, 3, 2),
        (32, 3, 768, 1, 224, 16, 16),
        (2, 64, 64, 1, 512, 3, 1),
        (256, 256, 256, 1, 14, 3, 1),
    ),
)
_DIRECTIONS = ("forward", "data", "weights")
_PASSES = (  # rows and their length
    *((32768, 1024), (4096, 1024), (512, 1024), (262144, 1024), (64, 1024), (401408, 64), (16384, 4096)),
)
_PASS_KINDS = ("__add__", "layer_norm", "gelu", "clone", "softmax", "relu", "batch_norm", "dropout", "__mul__", "silu")
_FEWER_KINDS = ("rms_norm", "cross_entropy", "max_pool2d")  # at two sizes only
_FORWARD_ONLY = ("clone", "__add__")
_UPDATES = ("_foreach_addcdiv_", "_foreach_mul_", "_foreach_lerp_", "_foreach_sqrt")
_UPDATED = ((64, 1 << 18), (16, 1 << 22), (128, 1 << 12))  # tensors and the elements of each


def choose_kernels(device: Device) -> tuple[Chosen, ...]:
    """Kernels of each kind in the types that the device has; kinds alternate, so that a part of them is useful too."""
    precisions = [name for name in _PREFERRED if name in list_precisions(device)]
    kinds = [
        _choose(_list_products, precisions, parts=_PRODUCT_PARTS),
        _choose(_list_passes, [each for each in precisions if each in ("fp32", "bf16", "fp16")]),
        _choose(_list_convolutions, _find_convolution_types(precisions)),
        _choose(_list_attentions, [each for each in precisions if each not in ("fp8", "tf32")], parts=_ATTENTION_PARTS),
    ]
    return tuple(each for each in _alternate(kinds) if _fits(each, device))


def _choose(
    make: Callable[[str], Iterable[Chosen]], precisions: Sequence[str], *, parts: Mapping[str, float] = _PARTS
) -> list[Chosen]:
    """Of each type in turn: all of the first, fewer of the others, fewest of fp16 which runs at the rate of bf16."""
    lists = [list(make(each)) for each in precisions]
    shares = [1.0, *(parts.get(each, 1.0) if "bf16" in precisions else 1.0 for each in precisions[1:])]
    return _alternate([some[: round(share * len(some))] for some, share in zip(lists, shares, strict=True)])


def _find_convolution_types(precisions: Sequence[str]) -> list[str]:
    """In single precision always TF32, which PyTorch lets cuDNN use on every device that has it."""
    known = ["tf32" if each == "fp32" else each for each in precisions if each != "fp8"]
    return list(dict.fromkeys(known))


def _alternate(lists: Sequence[Sequence[Chosen]]) -> list[Chosen]:
    """One of each in turn, without those that appear twice."""
    turns = chain.from_iterable(zip_longest(*lists))
    return list(dict.fromkeys(each for each in turns if each is not None))


def _list_products(precision: str) -> Iterator[Product]:
    sizes = ((rows, columns, inner, 1) for rows, columns, inner in _spread(_SIZES, _SPREAD))
    for number, (rows, columns, inner, many) in enumerate((*_SQUARES, *_MANY, *sizes), start=1):
        whole = _pick(_WHOLE, number, 7)
        columns, inner = (max(whole, round(size / whole) * whole) for size in (columns, inner))
        if precision != "fp8" or many == 1:  # there is no batched product in fp8
            yield Product(rows=rows, columns=columns, inner=inner, many=many, precision=precision)


def _spread(ranges: Sequence[Sequence[int]], count: int) -> Iterator[tuple[int, ...]]:
    """Sizes evenly spread over the logarithms of each range: a Halton sequence, of which each beginning is even too.

    Sizes on a grid would say little of those between them.
    """
    for number in range(1, count + 1):
        yield tuple(
            round(math.exp(np.interp(_reverse_digits(number, base) * (len(ends) - 1), range(len(ends)), np.log(ends))))
            for ends, base in zip(ranges, (2, 3, 5), strict=False)
        )


def _pick(choices: Sequence[Choice], number: int, base: int) -> Choice:
    """One of some, each as often, whatever the sizes of that number are: the base is none of theirs."""
    return choices[int(_reverse_digits(number, base) * len(choices))]


def _reverse_digits(number: int, base: int) -> float:
    """The number with its digits behind the point, in the opposite order."""
    found, part = 0.0, 1.0
    while number:
        part /= base
        number, digit = divmod(number, base)
        found += part * digit
    return found


def _list_attentions(precision: str) -> Iterator[Attention]:
    for number, (length, every, fewer) in enumerate(_spread((_LENGTHS, _HEADS_IN_ALL, _FEWER), _ATTENTIONS), start=1):
        kind = _pick(_QUERIES, number, 7)
        heads = 8 if every < 128 else 16
        forward = Attention(
            batch=max(1, round(every / heads)),
            heads=heads,
            key_heads=heads // _pick(_GROUPS, number, 11),
            queries={"all": length, "some": math.ceil(length / fewer), "one": 1}[kind],
            keys=length,
            width=_pick((64, 128), number, 13),
            causal=kind == "all" and _pick((True, False), number, 17),  # else it is another mask than in generating
            precision=precision,
            library=FLASH_2,
        )
        yield forward
        if kind == "all":
            yield replace(forward, backward=True)


def _list_convolutions(precision: str) -> Iterator[Convolution]:
    layouts = (True, False) if precision in ("fp16", "bf16") else (False,)
    for images, channels, filters, groups, size, kernel, stride in _CONVOLUTIONS:
        out = math.ceil(size / stride)
        for direction in _DIRECTIONS:
            for last in layouts:
                yield Convolution(
                    images=images,
                    channels=channels,
                    filters=filters,
                    groups=groups,
                    size_in=(size, size),
                    size_out=(out, out),
                    kernel=(kernel, kernel),
                    stride=stride,
                    direction=direction,
                    channels_last=last,
                    precision=precision,
                )


def _list_passes(precision: str) -> Iterator[Pass]:
    for place, (rows, row) in enumerate(_PASSES):
        for kind in (*_PASS_KINDS, *(_FEWER_KINDS if place < _FEW else ())):
            for backward in (False, True):
                if not (backward and kind in _FORWARD_ONLY):
                    yield Pass(kind=kind, rows=rows, row=row, precision=precision, backward=backward)
        if precision == "fp32" and (rows, row) == _PASSES[0]:
            yield from (Pass(kind=kind, rows=many, row=size) for many, size in _UPDATED for kind in _UPDATES)


def is_update(kind: str) -> bool:
    """Whether a pass is one of an optimizer, over many tensors at once."""
    return kind in _UPDATES


def _fits(chosen: Chosen, device: Device) -> bool:
    """Whether it is short, and its tensors fit."""
    precision = getattr(chosen, "precision", "fp32")
    peak = device.find_peak(precision) or device.peak_flops
    quick = count_flops(chosen) / (0.1 * peak) <= _LONGEST_S
    return quick and count_bytes(chosen) <= _MEMORY_SHARE * (device.memory_bytes or math.inf)


def count_bytes(chosen: Chosen) -> float:
    """Of all tensors of a kernel."""
    item = _ITEM[getattr(chosen, "precision", "fp32")]
    match chosen:
        case Product():
            rows, columns, inner = chosen.rows, chosen.columns, chosen.inner
            elements = float(chosen.many * (rows * inner + inner * columns + rows * columns))
        case Attention():
            elements = 8.0 * chosen.batch * chosen.heads * chosen.queries * chosen.width  # with gradients
        case Convolution():
            given = chosen.images * chosen.channels * math.prod(chosen.size_in)
            made = chosen.images * chosen.filters * math.prod(chosen.size_out)
            elements = 2.0 * (given + made)
        case _:
            elements = 4.0 * chosen.elements
    return elements * item


def count_flops(chosen: Chosen) -> float:
    """Operations of a kernel."""
    match chosen:
        case Product():
            return 2.0 * chosen.many * chosen.rows * chosen.columns * chosen.inner
        case Attention():
            pairs = chosen.batch * chosen.heads * chosen.queries * chosen.keys * (0.5 if chosen.causal else 1.0)
            return pairs * chosen.width * (10.0 if chosen.backward else 4.0)
        case Convolution():
            each = chosen.channels / chosen.groups * math.prod(chosen.kernel)
            return 2.0 * chosen.images * chosen.filters * math.prod(chosen.size_out) * each
        case _:
            return float(chosen.elements)
