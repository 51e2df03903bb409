"""The operators of one of several GPUs that share layers, sequences and experts, with the shapes that it has."""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import Layout, find_experts
from foretell.core.tensor_roles import TensorRole, find_tensor_role
from foretell.core.workload import Operator, Shape, StepPhase, Workload
from foretell.distributed.step_dimensions import (
    ATTENTION,
    GROUPED_PRODUCTS,
    Dimensions,
    copies_weight,
    find_weights,
    resize_operator,
)


class Part(StrEnum):
    """Where an operator is in a divided model."""

    COLUMNS = "columns"
    ROWS = "rows"
    VOCABULARY = "vocabulary"
    BETWEEN = "between"  # inside of attention or of a feed-forward part, between columns and rows
    EXPERTS = "experts"
    AROUND = "around"  # norms and sums between those parts
    UPDATE = "update"


def find_parts(workload: Workload) -> tuple[Part, ...]:
    """The part of each operator."""
    layers = workload.layers or ("",) * len(workload.operators)
    known = find_layer_parts(layers)
    return tuple(
        Part.UPDATE if operator.phase is StepPhase.UPDATE else known[layer]
        for operator, layer in zip(workload.operators, layers, strict=True)
    )


def find_layer_parts(layers: Iterable[str]) -> dict[str, Part]:
    """The part of each layer."""
    roles = {layer: find_tensor_role(layer) for layer in set(layers)}
    inside = {
        layer.rpartition(".")[0]
        for layer, role in roles.items()
        if role is TensorRole.COLUMNS and not layer.rpartition(".")[0].rpartition(".")[2].isdigit()
    }
    return {layer: _find_part(layer, roles[layer], inside) for layer in roles}


def _find_part(layer: str, role: TensorRole | None, inside: set[str]) -> Part:
    if find_experts(layer):
        return Part.EXPERTS
    if role is not None:
        return Part(role.value)
    between = layer in inside or any(layer.startswith(f"{each}.") for each in inside)
    return Part.BETWEEN if between else Part.AROUND


def divide_operators(workload: Workload, layout: Layout, parts: tuple[Part, ...]) -> Workload:
    """The step with the shapes of one GPU. The update stays that of the whole model.

    Raises:
        SpecError: The model cannot be divided so.
    """
    if layout.tensor_parallel * layout.context_parallel * layout.expert_parallel == 1:
        return workload
    divider = _Divider(workload, layout)
    divider.check(parts)
    known: dict[tuple[Operator, Part], Operator] = {}
    operators = []
    for operator, part in zip(workload.operators, parts, strict=True):
        if (operator, part) not in known:
            known[operator, part] = divider.divide(operator, part)
        operators.append(known[operator, part])
    return replace(workload, operators=tuple(operators))


class _Divider:
    def __init__(self, workload: Workload, layout: Layout) -> None:
        self._name = workload.name
        self._sizes = Dimensions.find(workload)
        self._tensor, self._context = layout.tensor_parallel, layout.context_parallel
        self._experts = layout.expert_parallel
        self._sequence = layout.sequence_parallel

    def check(self, parts: tuple[Part, ...]) -> None:
        """Refuse what the model does not have."""
        wrong = []
        heads, tokens = self._sizes.heads, self._sizes.tokens
        if self._tensor > 1 and Part.COLUMNS not in parts:
            expected = "a model with linear layers of known names, such as q_proj and o_proj, fc1 and fc2"
            wrong.append(Mistake(place="tp", found=self._name, expected=expected))
        if self._tensor > 1 and heads % self._tensor:
            expected = f"a divisor of the {heads} heads of {self._name}"
            wrong.append(Mistake(place="tp", found=str(self._tensor), expected=expected))
        if self._context > 1 and (not tokens or tokens % self._context):
            expected = (
                f"a divisor of the {tokens} tokens of each example" if tokens else "a model of sequences of tokens"
            )
            wrong.append(Mistake(place="cp", found=str(self._context), expected=expected))
        if self._experts > 1 and Part.EXPERTS not in parts:
            expected = "a model with layers whose name has the part 'experts'"
            wrong.append(Mistake(place="ep", found=self._name, expected=expected))
        if wrong:
            raise SpecError("the layout", wrong)

    def divide(self, operator: Operator, part: Part) -> Operator:
        if part is Part.UPDATE:
            return operator
        if part is Part.EXPERTS:
            inputs = tuple(self._divide_experts(operator, shape) for shape in operator.inputs)
            return resize_operator(operator, inputs, self._divide_experts(operator, operator.output))
        inputs = tuple(self._divide_shape(operator, part, place, shape) for place, shape in enumerate(operator.inputs))
        return resize_operator(operator, inputs, self._divide_shape(operator, part, None, operator.output))

    def _divide_shape(self, operator: Operator, part: Part, place: int | None, shape: Shape) -> Shape:
        if part is not Part.BETWEEN and self._is_weight(operator, part, place, shape):
            return self._divide_weight(operator, part, shape)
        heads = self._sizes.has_heads(shape)
        if heads is not None and part is Part.BETWEEN:
            return _divide(shape, heads, self._tensor * self._context)
        if operator.kind == ATTENTION:
            return shape
        divided = self._divide_features(operator, part, place, shape)
        # Scores of words are those of whole sequences.
        shared = self._sequence and part is Part.AROUND and divided == shape
        return self._divide_tokens(divided, shared=shared)

    def _is_weight(self, operator: Operator, part: Part, place: int | None, shape: Shape) -> bool:
        if operator.kind == "accumulate":  # of weights that words share with scores
            return part is Part.VOCABULARY and len(shape) == 2 and shape[0] != self._sizes.batch * self._sizes.tokens
        return copies_weight(operator) if place is None else place in find_weights(operator)

    def _divide_weight(self, operator: Operator, part: Part, shape: Shape) -> Shape:
        """Outputs of columns and words, inputs of rows."""
        outputs, inputs = (-1, 0) if operator.kind == "addmm" else (0, -1)
        if part in (Part.COLUMNS, Part.VOCABULARY):
            return _divide(shape, outputs % len(shape), self._tensor)
        return _divide(shape, inputs % len(shape), self._tensor) if part is Part.ROWS and len(shape) > 1 else shape

    def _divide_tokens(self, shape: Shape, *, shared: bool) -> Shape:
        place = self._sizes.find_tokens(shape)
        return shape if place is None else _divide(shape, place, self._context * (self._tensor if shared else 1))

    def _divide_features(self, operator: Operator, part: Part, place: int | None, shape: Shape) -> Shape:
        """The last dimension: of what columns give and rows take, and of all between them."""
        if not shape or shape[-1] == 1 or not self._is_divided(operator, part, place, shape):
            return shape
        return _divide(shape, len(shape) - 1, self._tensor)

    def _is_divided(self, operator: Operator, part: Part, place: int | None, shape: Shape) -> bool:
        given = (operator.kind, place) in (("linear", 0), ("addmm", 1))
        casts_whole = operator.kind in _CASTS and shape[-1] == self._sizes.width
        if part is Part.COLUMNS:
            return not given and not casts_whole
        if part is Part.ROWS:
            return given or (operator.kind in _CASTS and not casts_whole)
        if part is Part.VOCABULARY:
            return place is None and operator.kind == "linear"
        if part is Part.BETWEEN:
            return len(shape) == 1 or (len(shape) < 4 and self._sizes.find_tokens(shape) is not None)
        # Scores of words, and features inside of a block.
        return len(shape) > 1 and shape[-1] > max(self._sizes.width, 1)

    def _divide_experts(self, operator: Operator, shape: Shape) -> Shape:
        """Rows of tokens by the GPUs that share a sequence; weights by expert, or inside of each expert."""
        if len(shape) == 3 and operator.kind in (*GROUPED_PRODUCTS, "bmm", "to"):
            if self._experts > 1:
                return _divide(shape, 0, self._experts)
            inner = next((place for place in (2, 1) if shape[place] != self._sizes.width), 2)
            return _divide(shape, inner, self._tensor)
        if not shape:
            return shape
        shape = _divide(shape, 0, self._context * (self._tensor if self._experts > 1 else 1))
        inside = self._experts == 1 and len(shape) > 1 and shape[-1] not in (1, self._sizes.width)
        return _divide(shape, len(shape) - 1, self._tensor) if inside else shape


_CASTS = ("to", "accumulate")  # of what columns take


def _divide(shape: Shape, place: int, parts: int) -> Shape:
    return (*shape[:place], max(1, -(-shape[place] // parts)), *shape[place + 1 :]) if shape else shape
