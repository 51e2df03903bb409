"""The dimensions of a step's tensors that layouts divide: examples, tokens and heads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from foretell.core.workload import Attribute, Operator, Shape, StepPhase, Workload

PRODUCTS = frozenset({"linear", "matmul", "__matmul__", "bmm", "mm", "addmm", "baddbmm", "einsum"})
GROUPED_PRODUCTS = frozenset({"_grouped_mm", "grouped_mm", "_scaled_grouped_mm"})
ATTENTION = "scaled_dot_product_attention"
_CONVOLUTIONS = frozenset(f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3))
_WITH_WEIGHTS = frozenset({"linear", "embedding", "layer_norm", "rms_norm", "batch_norm", "group_norm", *_CONVOLUTIONS})
_ITEM_BYTES = {"float64": 8, "float32": 4, "int64": 8, "int32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """Sizes of the dimensions of a step; 0 for what it does not have."""

    batch: int
    tokens: int = 0  # of each example
    width: int = 0  # of the embedding of a token
    heads: int = 0
    key_heads: int = 0
    routed: int = 0  # rows that experts take of an example

    @classmethod
    def find(cls, workload: Workload) -> "Dimensions":
        """Those of the first embedding of whole sequences, of the first attention, and of the first experts."""
        tokens, width = _find_tokens(workload)
        heads, key_heads = _find_heads(workload, tokens)
        return cls(
            batch=workload.batch,
            tokens=tokens,
            width=width,
            heads=heads,
            key_heads=key_heads,
            routed=_find_routed(workload),
        )

    def has_heads(self, shape: Shape) -> int | None:
        """The place of the dimension that is the number of heads; None if there is none."""
        counts = {self.heads, self.key_heads} - {0, 1}
        if len(shape) == 4:
            return next((place for place in (1, 2) if shape[place] in counts), None)
        if len(shape) == 3 and shape[0] in {self.batch * count for count in counts} and shape[1] == self.tokens:
            return 0
        return None

    def find_tokens(self, shape: Shape) -> int | None:
        """The place of the dimension that is the tokens of an example, or those of all examples."""
        if not self.tokens:
            return None
        if len(shape) in (1, 2) and shape and shape[0] == self.batch * self.tokens and self.batch > 1:
            return 0
        places = (1, 0, 2) if len(shape) == 3 else (2, 1) if len(shape) == 4 else (1, 0)
        return next((place for place in places if place < len(shape) and shape[place] == self.tokens), None)


def _find_tokens(workload: Workload) -> tuple[int, int]:
    for operator in workload.operators:
        if operator.kind == "embedding" and len(operator.output) == 3 and operator.output[0] == workload.batch:
            return operator.output[1], operator.output[2]
    found = next((each for each in workload.operators if each.kind == ATTENTION and len(each.inputs[0]) == 4), None)
    return (found.inputs[0][2], found.inputs[0][1] * found.inputs[0][3]) if found else (0, 0)


def _find_heads(workload: Workload, tokens: int) -> tuple[int, int]:
    """Of the first fused attention, or else the first product of queries and keys."""
    for operator in workload.operators:
        if operator.kind == ATTENTION and len(operator.inputs) > 1 and len(operator.inputs[0]) == 4:
            heads = operator.inputs[0][1]
            key_heads = operator.get("key_heads", heads)
            return heads, key_heads if isinstance(key_heads, int) else heads
    products = (operator.output for operator in workload.operators if operator.kind in PRODUCTS)
    heads = next((count for shape in products if (count := _count_heads(shape, workload.batch, tokens)) > 1), 0)
    return heads, heads


def _count_heads(scores: Shape, batch: int, tokens: int) -> int:
    """Heads, if these are scores of queries and keys; else 0."""
    if not tokens or scores[-2:] != (tokens, tokens):
        return 0
    return scores[1] if len(scores) == 4 else scores[0] // batch if len(scores) == 3 else 0


def _find_routed(workload: Workload) -> int:
    rows = next((each.inputs[0][0] for each in workload.operators if each.kind in GROUPED_PRODUCTS), 0)
    return 0 if rows % workload.batch else rows // workload.batch


def find_weights(operator: Operator) -> frozenset[int]:
    """The places of those inputs that are parameters, or copies of them in another precision."""
    if operator.kind == "addmm":
        return frozenset({0, 2})  # a bias, and a matrix that is the transpose of a linear layer's
    if operator.kind in _WITH_WEIGHTS or operator.kind in GROUPED_PRODUCTS:
        return frozenset(range(1, len(operator.inputs)))
    sizes = [math.prod(shape) for shape in operator.inputs]
    return frozenset({sizes.index(operator.parameters)} if operator.parameters in sizes else ())


def copies_weight(operator: Operator) -> bool:
    """Whether the result is a parameter as well, in another precision."""
    return operator.inputs == (operator.output,) and 0 in find_weights(operator)


def count_item_bytes(dtype: str) -> int:
    """Bytes of an element."""
    return _ITEM_BYTES.get(dtype, 2)


def resize_operator(operator: Operator, inputs: tuple[Shape, ...], output: Shape) -> Operator:
    """The operator with tensors of other sizes, and its costs in proportion."""
    before, after = (*operator.inputs, operator.output), (*inputs, output)
    if before == after:
        return operator
    if operator.kind == "embedding" and operator.phase is StepPhase.FORWARD:  # which reads few rows of its table
        before, after = (operator.inputs[0], operator.output), (inputs[0], output)
    moved = _count_all(after) / max(1, _count_all(before))
    work = _compare_work(operator, inputs, output)
    return replace(
        operator,
        inputs=inputs,
        output=output,
        attributes=_resize_attributes(operator, inputs),
        flops=operator.flops * work,
        product_flops=operator.product_flops * work,
        bytes_moved=operator.bytes_moved * moved,
        parameters=_resize_parameters(operator, inputs),
    )


def _count_all(shapes: tuple[Shape, ...]) -> int:
    return sum(map(math.prod, shapes))


def _compare_work(operator: Operator, inputs: tuple[Shape, ...], output: Shape) -> float:
    """The ratio of operations: of products by results and inner dimension, of others by the largest tensor."""
    if operator.kind in (*PRODUCTS, *GROUPED_PRODUCTS) and len(inputs) > 1:
        first = 1 if operator.kind in ("addmm", "baddbmm") and len(inputs) > 2 else 0
        before, after = _count_work(operator.inputs[first], operator.output), _count_work(inputs[first], output)
    elif operator.kind == ATTENTION or operator.kind in _CONVOLUTIONS:
        before, after = math.prod(operator.output), math.prod(output)
    else:
        before, after = (
            max(map(math.prod, shapes)) for shapes in ((*operator.inputs, operator.output), (*inputs, output))
        )
    return after / max(1, before)


def _count_work(first: Shape, output: Shape) -> int:
    return math.prod(output) * (first[-1] if first else 1)


def _resize_attributes(operator: Operator, inputs: tuple[Shape, ...]) -> tuple[tuple[str, Attribute], ...]:
    if operator.kind != ATTENTION or len(inputs) < 2 or len(inputs[1]) != 4:
        return operator.attributes
    return tuple((name, inputs[1][1] if name == "key_heads" else value) for name, value in operator.attributes)


def _resize_parameters(operator: Operator, inputs: tuple[Shape, ...]) -> int:
    weights = find_weights(operator)
    if not operator.parameters or not weights:
        return operator.parameters
    before, after = (sum(math.prod(shapes[place]) for place in weights) for shapes in (operator.inputs, inputs))
    return round(operator.parameters * after / max(1, before))


def resize_batch(workload: Workload, batch: int) -> Workload:
    """The same step with another number of examples in its batch."""
    if batch == workload.batch:
        return workload
    dimensions = Dimensions.find(workload)
    known: dict[Operator, Operator] = {}
    for operator in workload.operators:
        if operator not in known:
            known[operator] = _resize_examples(operator, dimensions, batch)
    return replace(workload, operators=tuple(known[each] for each in workload.operators), batch=batch)


def _resize_examples(operator: Operator, dimensions: Dimensions, batch: int) -> Operator:
    if operator.phase is StepPhase.UPDATE:
        return operator
    multiples = _list_multiples(dimensions)
    weights = find_weights(operator)
    rows = {dimensions.batch * factor for factor in (1, dimensions.tokens, dimensions.routed)}

    def resize(shape: Shape) -> Shape:
        if not shape or (len(shape) == 1 and shape[0] not in rows):
            return shape
        factor = multiples.get(shape[0])
        return (batch * factor, *shape[1:]) if factor else shape

    inputs = tuple(shape if place in weights else resize(shape) for place, shape in enumerate(operator.inputs))
    return resize_operator(operator, inputs, operator.output if copies_weight(operator) else resize(operator.output))


def _list_multiples(dimensions: Dimensions) -> Mapping[int, int]:
    """First dimensions that grow with the batch, and how many elements of them an example has."""
    factors = (1, dimensions.tokens, dimensions.routed, dimensions.heads, dimensions.key_heads)
    return {dimensions.batch * factor: factor for factor in reversed(factors) if factor}
