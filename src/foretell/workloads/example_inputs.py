"""Example tensors for the inputs of a model: integers and masks have values, floating-point numbers need none.

Integers are drawn below their limit, the same each time. By the name of the input, a mask is all ones, lengths are all
the longest, and offsets are evenly spaced from 0.
"""

import dataclasses
import inspect
import random
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from foretell.workloads.known_tensors import find_fake_mode
from foretell.workloads.step_options import CONSTANT, InputSpec

HIGH = 2  # limit of integers for which none is given


def build_example_input(given: InputSpec, floating: torch.dtype | None = None) -> Any:
    """A tensor for an input; with ``floating``, that type replaces float32."""
    if given.dtype == CONSTANT:
        return given.value
    dtype: torch.dtype = getattr(torch, given.dtype)
    if not dtype.is_floating_point:
        return draw_integers(given, torch.Generator().manual_seed(0))
    with find_fake_mode():
        return torch.empty(given.shape, dtype=floating if floating and dtype is torch.float32 else dtype)


def draw_integers(given: InputSpec, generator: torch.Generator) -> torch.Tensor:
    """Integers or truth values for an input."""
    dtype: torch.dtype = getattr(torch, given.dtype)
    name = (given.name or "").rpartition(".")[2]
    high = given.high or HIGH
    if dtype is torch.bool or "mask" in name:
        return torch.ones(given.shape, dtype=dtype)
    if "length" in name:
        return torch.full(given.shape, max(1, given.high or 1), dtype=dtype)
    if "offset" in name:
        spaced = torch.arange(given.shape[-1]) * high // given.shape[-1]
        return spaced.expand(given.shape).to(dtype).contiguous()
    return torch.randint(0, high, given.shape, generator=generator).to(dtype)


# Dictionaries, lists and dataclasses


def arrange_inputs(
    inputs: Iterable[InputSpec], build: Callable[[InputSpec], Any], function: Callable[..., Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a function, positional and by name; the parts of one are put together as it is annotated."""
    args: list[Any] = []
    tree: dict[str, Any] = {}
    for given in inputs:
        if given.name is None:
            args.append(build(given))
            continue
        *path, last = given.name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = build(given)
    types = _find_types(function)
    return args, {name: _assemble(value, types.get(name)) for name, value in tree.items()}


def _find_types(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # an annotation that cannot be resolved
        return {}


def _assemble(value: Any, kind: Any) -> Any:
    """A dictionary as the list, dataclass or named tuple that is asked for."""
    if not isinstance(value, dict):
        return value
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        types = _find_types(kind)
        return kind(**{name: _assemble(each, types.get(name)) for name, each in value.items()})
    parts = {name: _assemble(each, None) for name, each in value.items()}
    if list(parts) != [str(place) for place in range(len(parts))]:
        return parts
    return tuple(parts.values()) if typing.get_origin(kind) is tuple else list(parts.values())


def describe_inputs(example: Any, function: Callable[..., Any]) -> tuple[InputSpec, ...]:
    """The inputs that an example has: a tensor, positional arguments, or arguments by name."""
    parameters = inspect.signature(function).parameters
    names = [name for name, each in parameters.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if isinstance(example, Mapping) and (set(example) <= set(names) or len(names) != 1):
        return tuple(spec for name, value in example.items() for spec in _describe(str(name), value))
    several = isinstance(example, (tuple, list)) and not hasattr(example, "_fields")
    given = example if several else (example,)
    return tuple(spec for name, value in zip(names, given, strict=False) for spec in _describe(name, value))


def _describe(path: str, value: Any) -> Iterator[InputSpec]:
    if isinstance(value, torch.Tensor):
        whole = not (value.dtype.is_floating_point or value.dtype in (torch.bool, torch.complex64))
        high = int(value.max()) + 1 if whole and value.numel() else None
        yield InputSpec(name=path, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."), high=high)
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    elif isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", range(len(value)))
        value = dict(zip(map(str, fields), value, strict=True))
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _describe(f"{path}.{name}", each)
    else:
        yield InputSpec(name=path, shape=(), dtype=CONSTANT, value=value)


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Let all random draws within be the same each time, and continue afterwards as if there had been none."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy:
                numpy.random.set_state(states[1])
