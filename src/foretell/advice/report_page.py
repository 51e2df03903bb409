"""The report of an app as one HTML page, without scripts, other files or network."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from foretell.advice import plots as advice_plots
from foretell.campaigns import plots as campaigns_plots
from foretell.core.app import App
from foretell.core.model_card import ModelCard
from foretell.core.prediction import Estimate, Recommendation
from foretell.core.render import figures as reports_plots
from foretell.core.render import phrases as words
from foretell.core.run import Run, State
from foretell.core.units import render_bytes, render_duration, render_most_money
from foretell.runtimes import plots as runtimes_plots

_RUNS = 200
_FAILURES = 20
_OFFERS = 40
_COLOURS = {
    reports_plots.INK: "--ink",
    reports_plots.MUTED: "--muted",
    reports_plots.GRID: "--line",
    reports_plots.ACCENT: "--accent",
    reports_plots.PICK: "--pick",
}


def render_page(
    *,
    app: App,
    card: ModelCard,
    runs: Sequence[Run],
    counts: Mapping[State, int],
    recommendation: Recommendation | None,
    created_at: datetime,
) -> str:
    """One self-contained HTML page; ``runs`` are newest first, ``counts`` are of all runs there are."""
    failed = [run for run in runs if run.state not in (State.COMPLETED, State.RUNNING)]
    return _load_template().render(
        app=app,
        card=card,
        runs=runs[:_RUNS],
        failed=failed[:_FAILURES],
        counts={state: number for state, number in counts.items() if number},
        total=sum(counts.values()),
        recommendation=recommendation,
        offers=recommendation.offers[:_OFFERS] if recommendation else (),
        rejections=words.group_rejections(recommendation.rejections) if recommendation else (),
        plots=_draw_all(card, runs, recommendation),
        created_at=created_at,
    )


@cache
def _load_template() -> Template:
    environment = Environment(
        loader=PackageLoader("foretell.advice"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(words=words, bytes=render_bytes, duration=render_duration)
    environment.globals.update(most_money=render_most_money, interval=_render_interval)
    return environment.get_template("report.html.j2")


def _clean(value: object) -> object:
    """Characters that a page cannot hold are escaped; our own markup stays as it is."""
    return words.clean_block(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _render_interval(quantity: str, estimate: Estimate) -> str:
    return words.render_interval(estimate, lambda value: words.render_quantity(quantity, value))


def _draw_all(card: ModelCard, runs: Sequence[Run], recommendation: Recommendation | None) -> dict[str, Markup]:
    figures = {
        quantity: runtimes_plots.draw_predicted_measured(judgement, title=words.title_quantity(quantity))
        for quantity, judgement in card.judgements.items()
    }
    if recommendation and any(offer.cost for offer in recommendation.offers):
        figures["offers"] = advice_plots.draw_offers(recommendation)
    drawn_runs = campaigns_plots.draw_runs(runs)
    if drawn_runs is not None:
        figures["runs"] = drawn_runs
    return {
        name: _inline(reports_plots.render_svg(figure), prefix=f"plot{number}")
        for number, (name, figure) in enumerate(figures.items())
    }


def _inline(svg: str, *, prefix: str) -> Markup:
    """A plot in the colours of the page, light and dark, with unique ids."""
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    return Markup(svg)  # noqa: S704  # matplotlib escapes what users wrote
