"""An explanation as sentences, as JSON and as a plot."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.core.app import Value
from foretell.core.prediction import Estimate
from foretell.core.render.figures import render_svg, save_figure
from foretell.core.run import Allocation
from foretell.core.serialization import render_json
from foretell.runtimes.explanation import (
    INSIDE,
    MACHINE,
    Contribution,
    Driver,
    Explanation,
    Piece,
    Point,
    QuantityExplanation,
    Source,
)
from foretell.runtimes.plots import draw_explanation
from foretell.runtimes.render import build_explanation_record, describe_drivers, describe_sources, render_explanation

Golden = Callable[[str, str], None]
ToText = Callable[..., str]


def _estimate(value: float) -> Estimate:
    return Estimate(value=value, low=0.8 * value, high=1.3 * value, level=0.9)


def _curve(*points: tuple[Value, float]) -> tuple[Point, ...]:
    return tuple(Point(value=value, estimate=_estimate(seconds)) for value, seconds in points)


def _piece(low: float, high: float, exponent: float) -> Piece:
    return Piece(low=low, high=high, exponent=exponent)


EPOCHS = Driver(
    name="epochs", value=200, effect=50.0, least=2, most=100, low=2.0, high=100.0, exponent=1.0,
    pieces=(_piece(2, 100, 0.98),), curve=_curve((2, 8.0), (20, 80.0), (100, 400.0), (200, 800.0)),
)  # fmt: skip
CORES = Driver(
    name="cores", value=48, effect=7.5, least=8, most=1, low=1.0, high=16.0, exponent=0.01,
    pieces=(_piece(1, 8, -0.93), _piece(8, 16, 0.02)), curve=_curve((1, 6000.0), (8, 800.0), (16, 800.0), (48, 800.0)),
)  # fmt: skip
DATASET = Driver(
    name="dataset", value="cifar", effect=3.1, least="mnist", most="cifar", low=None, high=None, exponent=None,
    pieces=(), curve=_curve(("mnist", 258.0), ("cifar", 800.0)),
)  # fmt: skip
BATCH = Driver(
    name="batch_size", value=64, effect=2.3, least=256, most=32, low=32.0, high=256.0, exponent=-0.4,
    pieces=(_piece(32, 256, -0.4),), curve=_curve((32, 1055.0), (64, 800.0), (256, 459.0)),
)  # fmt: skip
NEVER_RUN = Source(name="cores", value=48, measured="1 to 16", share=0.62)
REST = Source(name=INSIDE, value=None, measured="", share=0.38)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    time = QuantityExplanation(
        quantity="elapsed_s",
        estimate=_estimate(800.0),
        usual=_estimate(60.0),
        drivers=(EPOCHS, CORES, DATASET, BATCH),
        contributions=(
            Contribution(name="epochs", value=200, usual=20, factor=10.0, share=0.6),
            Contribution(name="dataset", value="cifar", usual="mnist", factor=3.1, share=0.3),
            Contribution(name="cores", value=48, usual=4, factor=0.43, share=0.1),
        ),
        sources=(NEVER_RUN, REST),
    )
    memory = replace(time, quantity="peak_memory_bytes", estimate=_estimate(3e8), drivers=(BATCH,))
    return Explanation(
        app="fcnet",
        parameters={"epochs": 200, "dataset": "cifar", "batch_size": 64},
        allocation=Allocation(cores=48),
        usual={"epochs": 20, "dataset": "mnist", "batch_size": 64, "cores": 4},
        elapsed_s=time,
        peak_memory_bytes=memory,
    )


def test_text(explanation: Explanation, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_explanation.txt", to_text(render_explanation(explanation)))


def test_text_keeps_to_twelve_lines(explanation: Explanation, to_text: ToText) -> None:
    time = explanation.elapsed_s
    many = replace(
        time, drivers=time.drivers * 4, contributions=time.contributions * 4, sources=(*[NEVER_RUN] * 8, REST)
    )
    parameters: dict[str, Value] = {f"parameter_{number}": number for number in range(30)}
    crowded = replace(explanation, elapsed_s=many, peak_memory_bytes=many, parameters=parameters)
    assert len(to_text(render_explanation(crowded)).splitlines()) <= 12


def test_sentence_has_the_exponents(explanation: Explanation) -> None:
    straight = replace(explanation.elapsed_s, drivers=(EPOCHS, BATCH))
    assert describe_drivers(straight) == "Time grows with epochs^1.0 and batch_size^-0.4"
    assert describe_drivers(replace(straight, drivers=(CORES,))) == "Time grows with cores^-0.9 up to 8, then flat"
    assert describe_drivers(replace(straight, drivers=(DATASET,))) == "Time is 3.1 x from dataset = mnist to cifar"
    assert "hardly depends" in describe_drivers(replace(straight, drivers=()))


def test_weak_powers_do_not_read_as_none(explanation: Explanation) -> None:
    weak = replace(BATCH, pieces=(_piece(1, 1e6, 0.03),))
    assert describe_drivers(replace(explanation.elapsed_s, drivers=(weak,))) == "Time grows with batch_size^0.03"


def test_uncertainty_names_what_was_never_run(explanation: Explanation) -> None:
    time = explanation.elapsed_s
    said = "62 % of the uncertainty is cores = 48, never run (runs had 1 to 16); 38 % is noise and model error"
    assert describe_sources(time) == said
    elsewhere = Source(name=MACHINE, value=None, measured="", share=0.62)
    assert "62 % of the uncertainty is another machine" in describe_sources(replace(time, sources=(elsewhere, REST)))
    assert describe_sources(replace(time, sources=(replace(REST, share=1.0),))).startswith("All values lie within")


def test_usual_run_says_so(explanation: Explanation, to_text: ToText) -> None:
    usual = replace(explanation, elapsed_s=replace(explanation.elapsed_s, contributions=()), peak_memory_bytes=None)
    text = to_text(render_explanation(usual))
    assert "This is the usual run" in text
    assert "memory" not in text


@settings(max_examples=20)
@given(text=st.text(st.characters(), max_size=8), number=st.floats())
def test_anything_can_be_shown(text: str, number: float, explanation: Explanation, to_text: ToText) -> None:
    odd = replace(DATASET, name=text, value=text, least=text, effect=number)
    estimate = Estimate(value=number, low=number, high=number, level=0.9)
    time = replace(explanation.elapsed_s, drivers=(odd,), estimate=estimate)
    changed = replace(explanation, elapsed_s=time)
    to_text(render_explanation(changed))
    json.loads(render_json(build_explanation_record(changed)), parse_constant=pytest.fail)
    render_svg(draw_explanation(changed)).encode("utf-8")


def test_record_has_everything(explanation: Explanation) -> None:
    record = json.loads(render_json(build_explanation_record(explanation)))
    assert set(record) == {field.name for field in fields(Explanation)}
    epochs = record["elapsed_s"]["drivers"][0]
    assert set(epochs) == {field.name for field in fields(Driver)}
    assert epochs["curve"][0]["estimate"]["value"] == 8.0


def test_plot_has_a_panel_for_each_of_the_main_drivers(explanation: Explanation) -> None:
    figure = draw_explanation(explanation)
    assert [axes.get_xlabel() for axes in figure.axes] == ["epochs", "cores", "dataset", "batch_size"]
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "log", "linear", "linear"]
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "range of the runs",
        "90 % band",
        "predicted",
        "asked",
    ]
    six = replace(explanation.elapsed_s, drivers=(*explanation.elapsed_s.drivers, EPOCHS, BATCH))
    assert len(draw_explanation(replace(explanation, elapsed_s=six)).axes) == 4


def test_times_within_a_decade_start_at_zero_in_one_unit(explanation: Explanation) -> None:
    narrow = replace(explanation.elapsed_s, drivers=(BATCH,))
    (axes,) = draw_explanation(replace(explanation, elapsed_s=narrow)).axes
    assert (axes.get_yscale(), axes.get_ylim()[0]) == ("linear", 0)
    assert axes.get_ylabel() == "predicted time, min"


def test_many_texts_keep_the_one_asked_for(explanation: Explanation) -> None:
    levels = _curve(*((f"level{number}", 10.0 + number) for number in range(30)))
    driver = replace(DATASET, value="level29", curve=levels)
    (axes,) = draw_explanation(replace(explanation, elapsed_s=replace(explanation.elapsed_s, drivers=(driver,)))).axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert len(labels) == 8
    assert "level29" in labels


def test_nothing_to_plot_is_said(explanation: Explanation, tmp_path: Path) -> None:
    nothing = replace(explanation, elapsed_s=replace(explanation.elapsed_s, drivers=()))
    save_figure(draw_explanation(nothing), tmp_path / "plot.png")
    assert "nothing that was varied matters" in render_svg(draw_explanation(nothing))
