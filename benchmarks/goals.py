"""Figures with the most that each should be."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure and the most it should be."""

    name: str
    value: float
    most: float

    @property
    def met(self) -> bool:
        return self.value <= self.most


def build_goal_table(goals: Iterable[Goal], *, title: str = "") -> Table:
    """The figures next to their goals; those that miss them are marked."""
    table = build_table(title, "figure", "value", "goal", " ")
    for goal in goals:
        missed = "" if goal.met else "[bold red]misses[/]"
        table.add_row(goal.name, _render(goal.value), f"≤ {_render(goal.most)}", missed)
    return table


def build_table(title: str, first: str, *heads: str) -> Table:
    """A table with a column of words, and numbers in the others."""
    table = Table(first, title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="right")
    return table


def print_json(record: Mapping[str, Any], goals: Iterable[Goal] = ()) -> None:
    judged = [{**asdict(goal), "met": goal.met} for goal in goals]
    json.dump({**record, "goals": judged} if judged else record, sys.stdout, indent=2)
    print()


def _render(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
