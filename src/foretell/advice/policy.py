"""Policies: which offers are allowed, and which of them is best."""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretell.core.errors import Mistake, SpecError
from foretell.core.units import render_duration, render_price

PREFERENCES = ("auto", "cheapest", "fastest")

Floats: TypeAlias = NDArray[np.float64]


class Policy(Protocol):
    """Which offers are allowed, and how they are ranked; on columns, for many offers at once.

    ``best`` is the adjective for the first one.
    """

    best: ClassVar[str]

    @property
    def max_time_s(self) -> float | None:
        """The limit of the time."""
        ...

    @property
    def max_cost(self) -> Decimal | None:
        """The limit of the cost."""
        ...

    def allows(self, *, longest_s: Floats, cost: Floats) -> NDArray[np.bool_]:
        """Where the upper bound of the time, and the cost of the whole request, are within the limits."""
        ...

    def rank(self, *, time_s: Floats, cost: Floats) -> tuple[Floats, Floats]:
        """Sorting keys, most important first; less is better."""
        ...

    def render(self, currency: str, *, several: bool = False) -> str:
        """The limits in words, of one offer or of several; empty where there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most time and money a job may take; ``None`` where there is no limit."""

    max_time_s: float | None = None
    max_cost: Decimal | None = None

    def allows(self, *, longest_s: Floats, cost: Floats) -> NDArray[np.bool_]:
        within_time = np.ones(longest_s.shape, dtype=bool) if self.max_time_s is None else longest_s <= self.max_time_s
        return within_time if self.max_cost is None else within_time & (cost <= float(self.max_cost))

    def render(self, currency: str, *, several: bool = False) -> str:
        parts, ending = [], "" if several else "s"
        if self.max_time_s is not None:
            parts.append(f"take{ending} at most {render_duration(self.max_time_s)}")
        if self.max_cost is not None:
            parts.append(f"cost{ending} at most {render_price(self.max_cost, currency)}")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheapest(Limits):
    """The least cost within the limits; the quicker on ties."""

    best: ClassVar[str] = "cheapest"

    def rank(self, *, time_s: Floats, cost: Floats) -> tuple[Floats, Floats]:
        return cost, time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest(Limits):
    """The least time within the limits; the cheaper on ties."""

    best: ClassVar[str] = "quickest"

    def rank(self, *, time_s: Floats, cost: Floats) -> tuple[Floats, Floats]:
        return time_s, cost


def choose_policy(*, max_time_s: float | None = None, max_cost: Decimal | None = None, prefer: str = "auto") -> Policy:
    """The cheapest within a time limit; the fastest where only the cost is limited; the cheapest without limits.

    Raises:
        SpecError: if ``prefer`` is unknown.
    """
    if prefer not in PREFERENCES:
        raise SpecError(
            "options",
            [
                Mistake(
                    place="--prefer",
                    found=repr(prefer),
                    expected=", ".join(PREFERENCES[:-1]) + f" or {PREFERENCES[-1]}",
                )
            ],
        )
    fastest = prefer == "fastest" or (prefer == "auto" and max_time_s is None and max_cost is not None)
    return (Fastest if fastest else Cheapest)(max_time_s=max_time_s, max_cost=max_cost)
