"""The table of well-known recipes: predicted against published figures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.advise.published import compare
from benchmarks.advise.recipes import RECIPES, Recipe
from foretell.core.units import render_duration

COLUMNS = ("Recipe", "GPUs", "Published", "Predicted", "90 % interval", "Predicted by published", "Whole training")
_WIDTH = 190


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeResult:
    """A recipe with its prediction: units a second of all GPUs."""

    recipe: dict[str, Any]
    predicted: float
    low: float
    high: float
    ratio: float | None  # predicted by published rate; None if there is none to compare
    inside: bool | None
    total_s: float | None  # of the whole training, if it has a usual end


def compare_recipes(recipes: Sequence[Recipe] = RECIPES) -> list[RecipeResult]:
    """Each recipe that can be predicted, in order."""
    found = {each.row.label: each for each in compare([recipe.build() for recipe in recipes])}
    return [_compare(recipe, found[recipe.name]) for recipe in recipes if recipe.name in found]


def _compare(recipe: Recipe, found: Any) -> RecipeResult:
    row, step = found.row, found.step
    units = row.rate * row.step_s * recipe.per_example  # of a step
    predicted, low, high = (units / seconds for seconds in (step.value, step.high, step.low))
    published = recipe.published
    return RecipeResult(
        recipe=asdict(recipe),
        predicted=predicted,
        low=low,
        high=high,
        ratio=predicted / published if published else None,
        inside=low <= published <= high if published else None,
        total_s=recipe.samples * recipe.per_example / predicted if recipe.samples else None,
    )


def print_recipes(results: Sequence[RecipeResult] | None = None) -> None:
    """Print the table and how far predictions are off."""
    results = compare_recipes() if results is None else results
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    table = Table(title="Well-known recipes: units a second of all GPUs", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("Recipe", "GPUs") else "right")
    for result in results:
        table.add_row(*_list_cells(result))
    console.print(table)
    console.print(summarize(results))


def summarize(results: Sequence[RecipeResult]) -> str:
    """The median error of those that can be compared, and how many are inside their interval."""
    ratios = np.array([each.ratio for each in results if each.ratio is not None])
    inside = sum(bool(each.inside) for each in results)
    median = 100 * float(np.median(np.abs(1 / ratios - 1)))
    return f"Compared: {len(ratios)}. Median error {median:.0f} % of the time; {inside} inside the 90 % interval."


def _list_cells(result: RecipeResult) -> tuple[str, ...]:
    recipe = result.recipe
    published = recipe["published"]
    mark = "" if result.inside or result.inside is None else " *"
    return (
        recipe["name"],
        f"{recipe['gpus']} {recipe['device']}",
        f"{published:,.0f} {recipe['unit']}/s" if published else "not compared",
        f"{result.predicted:,.0f} {recipe['unit']}/s",
        f"{result.low:,.0f} to {result.high:,.0f}{mark}",
        "" if result.ratio is None else f"{result.ratio:.2f}",
        "" if result.total_s is None else render_duration(result.total_s),
    )


def render_markdown(results: Sequence[RecipeResult]) -> str:
    """The table of the documentation, then where each figure is from and what differs."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"| {' | '.join('---' for _ in COLUMNS)} |"]
    lines += [f"| {' | '.join(_list_cells(result))} |" for result in results]
    lines += [
        "",
        summarize(results),
        "",
        "| Recipe | Published as | Where | What differs |",
        "| --- | --- | --- | --- |",
    ]
    cells = ("name", "said", "source", "differs")
    lines += [f"| {' | '.join(result.recipe[cell] for cell in cells)} |" for result in results]
    return "\n".join(lines)
