"""Predictions of distributed training: their limit, and how they are rendered as text, JSON and plots."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from foretell.core.observation import Resource
from foretell.core.prediction import Estimate
from foretell.core.render.figures import save_figure
from foretell.core.warning import PredictionWarning, build_warning
from foretell.core.workload import Workload
from foretell.distributed.api import LearnedConsumption
from foretell.distributed.consumption import (
    Change,
    ConsumptionPrediction,
    CycleEstimate,
    LimitedBy,
    Outlook,
    Setting,
    Strategy,
)
from foretell.distributed.plots import draw_outlook, place_burst
from foretell.distributed.render import (
    build_learned_consumption_record,
    build_outlook_record,
    describe_limit,
    describe_setting,
    render_learned_consumption,
    render_outlook,
    render_short_interval,
)

Golden = Callable[[str, str], None]
ToText = Callable[..., str]

GIGABIT = 1.25e8
REDUCED = Setting(workers=4, link_bytes_per_s=10 * GIGABIT, device="T4")
SERVED = Setting(
    strategy=Strategy.SERVERS, workers=4, servers=1, synchronous=False, link_bytes_per_s=GIGABIT, device="EPYC core"
)


def estimate(value: float) -> Estimate:
    return Estimate(value=value, low=0.8 * value, high=1.3 * value, level=0.9)


def build(
    setting: Setting = REDUCED, *, batch: int = 64, compute_s: float = 0.06, bytes_: float = 1e8
) -> ConsumptionPrediction:
    """Compute, then bytes by the link."""
    sent_s = bytes_ / (setting.link_bytes_per_s or 1e10) * (setting.workers / max(1, setting.servers)) / 4
    compute_s = compute_s * batch / 64
    whole_s = compute_s + sent_s
    compute = CycleEstimate(
        burst_s=estimate(compute_s),
        idle_s=estimate(sent_s),
        burst_amount=Estimate(value=0.96, low=0.9, high=1.0, level=0.9),
    )
    network = CycleEstimate(
        burst_s=estimate(sent_s),
        idle_s=estimate(compute_s),
        burst_amount=estimate(0.9 * (setting.link_bytes_per_s or 1e9)),
    )
    return ConsumptionPrediction(
        workload=Workload(name="train.py:build_model", operators=(), batch=batch),
        setting=setting,
        iteration=estimate(whole_s),
        compute_s=compute_s,
        exposed_s=sent_s,
        cycles={Resource.COMPUTE: compute, Resource.TRANSMIT: network, Resource.RECEIVE: network},
        gpu=setting.device == "T4",
        warnings=tuple(_list_warnings(setting)),
    )


def _list_warnings(setting: Setting) -> Iterator[PredictionWarning]:
    if setting.workers > 4:
        yield build_warning("outside-measured-range", f"{setting.workers} workers: 2 to 4 were measured.")
    if setting.device == "T4":
        yield build_warning("operators-not-measured", "Times of T4 were not measured.")


def explore(setting: Setting = REDUCED, *, compute_s: float = 0.06) -> Outlook:
    rate = setting.link_bytes_per_s or 0.0
    rows = {
        Change.LINK: [(replace(setting, link_bytes_per_s=factor * rate), 64) for factor in (0.5, 1.0, 2.0, 4.0)],
        Change.WORKERS: [(replace(setting, workers=workers), 64) for workers in (2, 4, 8)],
        Change.BATCH: [(setting, batch) for batch in (32, 64, 128)],
    }
    if setting.servers:
        rows[Change.SERVERS] = [(replace(setting, servers=servers), 64) for servers in (1, 2)]
    return Outlook(
        asked=build(setting, compute_s=compute_s),
        others={
            change: tuple(build(one, batch=batch, compute_s=compute_s) for one, batch in row)
            for change, row in rows.items()
        },
    )


LEARNED = LearnedConsumption(
    name="lab",
    method="timeline",
    jobs=20,
    disturbed=2,
    settings=(SERVED,),
    resources=frozenset({Resource.COMPUTE, Resource.TRANSMIT, Resource.RECEIVE}),
    transferred_from="shared",
    path=Path(".foretell/consumption/lab.safetensors"),
    measured=Path("jobs.jsonl"),
)


# Text


@pytest.mark.parametrize(("name", "setting"), [("reduced", REDUCED), ("served", SERVED)])
def test_an_outlook_is_shown(to_text: ToText, check_golden: Golden, name: str, setting: Setting) -> None:
    text = to_text(render_outlook(explore(setting)))
    assert max(map(len, text.splitlines())) <= 100
    check_golden(f"report_consumption_{name}.txt", text)


def test_without_curves_no_changes_are_shown(to_text: ToText) -> None:
    text = to_text(render_outlook(Outlook(asked=build())))
    assert "What would change" not in text
    assert "twice the link" not in text
    assert "memory (GPU): not predicted" in text


def test_a_single_worker_has_no_network(to_text: ToText) -> None:
    alone = replace(build(replace(REDUCED, workers=1)), exposed_s=0.0)
    alone = replace(alone, cycles={Resource.COMPUTE: alone.cycles[Resource.COMPUTE]})
    text = to_text(render_outlook(Outlook(asked=alone)))
    assert "Compute is the limit: there is no communication to wait for." in text
    assert "transmit: none: there is one worker" in text


def test_a_fitted_model_is_shown(to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_consumption_learned.txt", to_text(render_learned_consumption(LEARNED)))
    blind = replace(LEARNED, resources=frozenset({Resource.COMPUTE}), disturbed=0, transferred_from=None)
    text = " ".join(to_text(render_learned_consumption(blind)).split())
    assert "fitted from scratch" in text
    assert "needs network namespaces, so root on Linux" in text


# Words


@pytest.mark.parametrize(
    ("outlook", "limited_by", "expected"),
    [
        (
            explore(compute_s=0.01),
            LimitedBy.LINK,
            "The link is the limit: 89 % of an iteration waits for it; twice the link saves 44 %.",
        ),
        (
            explore(compute_s=1.0),
            LimitedBy.COMPUTE,
            "Compute is the limit: 7 % of an iteration waits for communication; twice the link saves 4 %.",
        ),
        (
            explore(SERVED, compute_s=0.5),
            LimitedBy.LINK,
            "The link is the limit: 62 % of an iteration waits for it; twice the link saves 31 %. "
            "One more server saves 31 %.",
        ),
        (
            Outlook(asked=build(compute_s=0.01)),
            LimitedBy.COMMUNICATION,
            "Communication is the limit: 89 % of an iteration waits for it.",
        ),
        (
            Outlook(asked=build(compute_s=1.0)),
            LimitedBy.COMPUTE,
            "Compute is the limit: 7 % of an iteration waits for communication.",
        ),
    ],
)
def test_the_limit_is_found_and_described(outlook: Outlook, limited_by: LimitedBy, expected: str) -> None:
    assert outlook.limit.by is limited_by
    assert describe_limit(outlook.limit) == expected


def test_a_faster_link_that_does_not_help_is_not_the_limit() -> None:
    asked = build(compute_s=0.01)
    faster = replace(asked, setting=replace(REDUCED, link_bytes_per_s=20 * GIGABIT))
    outlook = Outlook(asked=asked, others={Change.LINK: (asked, faster)})
    assert describe_limit(outlook.limit) == (
        "Communication is the limit, but not the link: 89 % of an iteration waits for it; twice the link saves nothing."
    )


def test_a_setting_is_a_line() -> None:
    assert describe_setting(REDUCED) == "4 workers, all-reduce, links of 10 Gb/s, T4"
    assert describe_setting(SERVED) == "4 workers and 1 server, asynchronous, links of 1 Gb/s, EPYC core"
    assert describe_setting(Setting(workers=1, device="cpu")) == "1 worker, all-reduce, no link, cpu"


def test_a_common_unit_is_shown_once() -> None:
    assert render_short_interval(Estimate(value=2, low=1, high=3, level=0.9), "{:g} ms".format) == "1 - 3 ms"
    mixed = render_short_interval(Estimate(value=2, low=1, high=3, level=0.9), lambda x: "1 µs" if x < 2 else "3 ms")
    assert mixed == "1 µs - 3 ms"


# Records


def test_json_has_all_figures_and_the_reason_of_missing_ones() -> None:
    record = build_outlook_record(explore())
    assert record["setting"]["strategy"] == "allreduce"
    assert record["iteration_s"]["value"] == pytest.approx(record["compute_s"] + record["exposed_s"])
    assert record["exposed_share"] == pytest.approx(record["exposed_s"] / record["iteration_s"]["value"])
    assert record["examples_per_s"] == pytest.approx(4 * 64 / record["iteration_s"]["value"])
    assert set(record["resources"]) == {"compute", "memory", "transmit", "receive"}
    assert set(record["resources"]["transmit"]["cycle"]) == {"burst_s", "idle_s", "burst_amount"}
    assert [each["unit"] for each in record["resources"].values()] == ["share", "share", "bytes/s", "bytes/s"]
    assert record["resources"]["memory"]["cycle"] is None
    assert "no training on a GPU was measured" in record["resources"]["memory"]["why"]
    assert [one["setting"]["workers"] for one in record["changes"]["workers"]] == [2, 4, 8]
    assert record["changes"]["workers"][2]["warnings"]
    assert record["limit"].startswith("The link is the limit")
    assert record["limited_by"] == "link"
    assert 0 < record["link_saving"] < 1
    assert record["server_saving"] is None


def test_a_fitted_model_as_json() -> None:
    record = build_learned_consumption_record(LEARNED)
    assert record["resources"] == ["compute", "receive", "transmit"]
    assert record["settings"][0]["servers"] == 1
    assert record["file"].endswith("lab.safetensors")


# Plots


@pytest.mark.parametrize("outlook", [explore(), explore(SERVED), Outlook(asked=build())])
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_an_outlook_is_drawn(outlook: Outlook, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"outlook.{kind}"
    save_figure(draw_outlook(outlook), path)
    assert path.stat().st_size > 1000


def test_a_plot_has_a_panel_for_each_resource_and_each_change() -> None:
    figure = draw_outlook(explore(SERVED))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert [title.split(":")[0] for title in titles[:3]] == ["compute (CPU)", "transmit", "receive"]
    assert labels[3:] == ["link", "workers", "batch", "servers"]


def test_bursts_lie_where_they_must() -> None:
    reduced, served = build(), build(SERVED)
    end_s = reduced.iteration.value
    sent_s = reduced.cycles[Resource.TRANSMIT].burst_s.value
    assert place_burst(Resource.COMPUTE, reduced) == 0
    assert place_burst(Resource.TRANSMIT, reduced) + sent_s == pytest.approx(end_s)
    assert place_burst(Resource.TRANSMIT, served) <= place_burst(Resource.RECEIVE, served)
