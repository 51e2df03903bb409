from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from foretell.advice.plots import draw_offers
from foretell.campaigns.plots import draw_runs
from foretell.core.errors import OutputError
from foretell.core.model_card import Judgement
from foretell.core.prediction import Recommendation
from foretell.core.render.figures import render_svg, save_figure
from foretell.core.run import Run
from foretell.runtimes.plots import draw_predicted_measured


def _tick_labels(figure: Figure, axis: str) -> list[str]:
    ticks = getattr(figure.axes[0], f"get_{axis}ticklabels")()
    return [tick.get_text() for tick in ticks]


def test_axes_speak_of_minutes_and_megabytes(judgement: Judgement) -> None:
    times = draw_predicted_measured(judgement, title="Time")
    sizes = draw_predicted_measured(replace(judgement, quantity="peak_memory_bytes"), title="Memory")
    assert _tick_labels(times, "x") == _tick_labels(times, "y") == ["1 min", "2 min", "5 min", "10 min", "20 min"]
    assert all(label.endswith((" B", " KB")) for label in _tick_labels(sizes, "x"))


def test_error_is_shown_in_the_corner(judgement: Judgement) -> None:
    figure = draw_predicted_measured(replace(judgement, pairs=((100, 110), (100, 120), (100, 200))), title="Time")
    assert figure.axes[0].texts[0].get_text() == "median error 20.0 %\n2 of 3 within 25 %"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PNG"])
def test_same_figure_same_bytes(recommendation: Recommendation, tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for path in paths:
        save_figure(draw_offers(recommendation), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")


@pytest.mark.parametrize("name", ["plot.pdf", "plot", "missing/plot.png", "plot.png/plot.png"])
def test_unwritable_plots_are_reported(judgement: Judgement, tmp_path: Path, name: str) -> None:
    (tmp_path / "plot.png").touch()
    with pytest.raises(OutputError, match=r"\.png|choose another folder"):
        save_figure(draw_predicted_measured(judgement, title="Time"), tmp_path / name)


def test_own_settings_of_the_user_do_not_matter(judgement: Judgement) -> None:
    usual = render_svg(draw_predicted_measured(judgement, title="Time"))
    with matplotlib.rc_context({"text.usetex": True, "axes.facecolor": "black", "font.size": 30}):
        assert render_svg(draw_predicted_measured(judgement, title="Time")) == usual


def test_front_is_joined_and_the_pick_named(recommendation: Recommendation) -> None:
    axes = draw_offers(recommendation).axes[0]
    front = [offer.prediction.elapsed_s.value for offer in recommendation.offers if offer.pareto]
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == sorted(front)
    assert [text.get_text() for text in axes.texts] == ["pitzer-cpu, 1 core"]


def test_free_offers_can_be_drawn(recommendation: Recommendation) -> None:
    free = tuple(replace(offer, cost=Decimal(0)) for offer in recommendation.offers)
    figure = draw_offers(replace(recommendation, offers=free, picked=free[0]))
    assert "<svg" in render_svg(figure)


def test_runs_are_drawn_over_what_matters(runs: list[Run]) -> None:
    figure = draw_runs(runs)
    assert figure is not None
    assert figure.axes[0].get_xlabel() == "epochs"


def test_nothing_to_draw(runs: list[Run]) -> None:
    assert draw_runs([]) is None
    assert draw_runs(runs[:1]) is None


@settings(max_examples=15, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.floats(), st.floats()), max_size=4),
    title=st.text(st.characters(), max_size=8) | st.sampled_from(["$x$", "$", "<b>", "漢字", "\\frac"]),
)
def test_odd_values_and_titles_can_be_drawn(pairs: list[tuple[float, float]], title: str, judgement: Judgement) -> None:
    svg = render_svg(draw_predicted_measured(replace(judgement, pairs=tuple(pairs)), title=title))
    svg.encode("utf-8")
    assert "<b>" not in svg
