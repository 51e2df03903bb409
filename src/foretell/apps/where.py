"""Which configurations an app excludes: the conditions under ``where`` in its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foretell.apps._nodes import Entry
from foretell.apps._values import find_near, render_value
from foretell.entities.app import App, Parameter, ParameterType, Value
from foretell.entities.condition import A_CONDITION, Condition, Kind, list_broken
from foretell.entities.formula import ExpressionError
from foretell.entities.run import Allocation, RunSpec
from foretell.errors import Mistake, SpecError

_MEMORY = "memory_mb"
_RESOURCES = ("cores", "gpus", "nodes", _MEMORY)
_KINDS = {
    ParameterType.INTEGER: Kind.NUMBER,
    ParameterType.NUMBER: Kind.NUMBER,
    ParameterType.TEXT: Kind.TEXT,
    ParameterType.BOOLEAN: Kind.TRUTH,
}
_MOST_SHOWN = 10


def read_where(entry: Entry | None, parameters: Sequence[Parameter], *, has_memory: bool) -> tuple[str, ...]:
    """The conditions, one or several; each that cannot be read is noted with its line."""
    if entry is None:
        return ()
    items = entry.read_items(expected="at least one condition") if entry.is_list else [entry]
    kinds = _list_kinds(parameters)
    if not has_memory:
        del kinds[_MEMORY]  # it would never be judged
    conditions = [_read_condition(item, kinds) for item in items]
    return tuple(condition.text for condition in conditions if condition is not None)


def _read_condition(entry: Entry, kinds: Mapping[str, Kind]) -> Condition | None:
    text = entry.read_text(expected=A_CONDITION)
    if text is None:
        return None
    try:
        return Condition.parse(text, kinds)
    except ExpressionError as exc:
        near = None if exc.unknown is None else find_near(exc.unknown, kinds)
        entry.note(exc.expected if near is None else f"{exc.expected}; did you mean {near!r}?", found=exc.found)
        return None


def _list_kinds(parameters: Sequence[Parameter]) -> dict[str, Kind]:
    named = {parameter.name: _KINDS[parameter.type] for parameter in parameters}
    return named | dict.fromkeys(_RESOURCES, Kind.NUMBER)


@dataclass(frozen=True)
class Where:
    """The conditions of an app, ready to be judged.

    Raises:
        SpecError: if the app came from elsewhere than a file, with a condition that cannot be read.
    """

    app: App
    _conditions: tuple[Condition, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = _list_kinds(self.app.parameters)
        try:
            conditions = tuple(Condition.parse(text, kinds) for text in self.app.where)
        except ExpressionError as exc:
            mistake = Mistake(place="where", found=exc.found, expected=f"{exc.expected}; correct it in the app file")
            raise SpecError(self.app.name, [mistake]) from None
        object.__setattr__(self, "_conditions", conditions)

    def find_broken(self, parameters: Mapping[str, Value], allocation: Allocation) -> str | None:
        """The first condition that excludes it; one on memory is not judged where none is asked for."""
        if not self._conditions:
            return None
        return next(iter(list_broken(self._conditions, {**parameters, **_list_resources(allocation)})), None)

    def allows(self, spec: RunSpec) -> bool:
        return self._find_broken_in(spec) is None

    def check(self, specs: Sequence[RunSpec]) -> None:
        """Refuse questions about what the app excludes.

        Raises:
            SpecError: with the first of them.
        """
        self._refuse([(_render_spec(spec), self._find_broken_in(spec)) for spec in specs])

    def check_rows(self, specs: Sequence[RunSpec]) -> None:
        """The same for the rows of a table, which are named by their numbers.

        Raises:
            SpecError: with the first of them.
        """
        named = ((f"{_render_spec(spec)} in row {row}", spec) for row, spec in enumerate(specs, start=1))
        self._refuse([(found, self._find_broken_in(spec)) for found, spec in named])

    def check_parameters(self, spec: RunSpec) -> None:
        """The same by the conditions on parameters alone, where the allocation is still to be chosen.

        Raises:
            SpecError: if one of them excludes it.
        """
        broken = list_broken(self._conditions, spec.parameters)
        self._refuse([(_render_spec(spec), condition) for condition in broken])

    def _find_broken_in(self, spec: RunSpec) -> str | None:
        return self.find_broken(spec.parameters, spec.allocation)

    def _refuse(self, judged: Sequence[tuple[str, str | None]]) -> None:
        mistakes = [
            Mistake(place="where", found=found, expected=f"{broken}, as the app file says")
            for found, broken in judged
            if broken is not None
        ]
        if mistakes:
            raise SpecError(f"configuration of {self.app.name}", mistakes[:_MOST_SHOWN])


def _list_resources(allocation: Allocation) -> dict[str, Any]:
    resources = {"cores": allocation.cores, "gpus": allocation.gpus, "nodes": allocation.nodes}
    if allocation.memory_bytes is not None:
        resources[_MEMORY] = allocation.memory_bytes // 2**20
    return resources


def _render_spec(spec: RunSpec) -> str:
    values = {**spec.parameters, **_list_resources(spec.allocation)}
    return " ".join(f"{name}={render_value(value)!s}" for name, value in values.items())
