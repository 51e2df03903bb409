"""Observed jobs as text, JSON and plots."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from foretell.core.observation import Cycle, CycleSearch, Load, Observation, Recorded, Resource, Series
from foretell.core.prediction import Estimate
from foretell.core.render.figures import render_svg
from foretell.core.serialization import render_json
from foretell.core.units import render_rate
from foretell.core.warning import build_warning
from foretell.core.workload import Workload
from foretell.distributed import render as consumption
from foretell.distributed.consumption import ConsumptionPrediction, Setting
from foretell.observations.plots import draw_observation
from foretell.observations.render import (
    average,
    build_observation_record,
    find_window,
    render_amount,
    render_observation,
)

TIMES_S = 0.02 * np.arange(501.0)
BURSTS = tuple((begin / 10, begin / 10 + 0.06) for begin in range(2, 98, 2))


def build_series(high: float, low: float) -> Series:
    return Series(times_s=TIMES_S, values=np.tile(np.repeat([high, low], [3, 7]), 50))


def build_cycle(high: float, low: float) -> CycleSearch:
    cycle = Cycle(burst_s=0.06, idle_s=0.14, burst_amount=high, idle_amount=low, period_s=0.2, bursts=48, chance=0.005)
    return CycleSearch(cycle=cycle, bursts=BURSTS)


@pytest.fixture
def observation() -> Observation:
    series = {
        Resource.COMPUTE: Series(times_s=TIMES_S, values=np.full(500, 0.98)),
        Resource.TRANSMIT: build_series(1.12e7, 0.0),
        Resource.RECEIVE: build_series(5.6e6, 1000.0),
    }
    recorded = Recorded(
        started_s=100.0,
        interval_s=0.02,
        series=series,
        cpu=series[Resource.COMPUTE],
        load=Load(others=0.4, cores=2, by={"stress (77)": 0.39}),
        processes=3,
        sampling_cpu_s=0.12,
    )
    return Observation(
        subject="torchrun train.py",
        recorded=recorded,
        cycles={
            Resource.COMPUTE: CycleSearch(cycle=None, why="it is no more periodic than noise"),
            Resource.TRANSMIT: build_cycle(1.12e7, 0.0),
            Resource.RECEIVE: build_cycle(5.6e6, 1000.0),
        },
        exit_code=0,
        warnings=(
            build_warning("busy-machine", "Disturbed: other processes used 0.40 of 2 cores (stress (77): 0.39 cores)."),
        ),
        run_id="abc-0",
        path="observations/abc-0.json",
    )


def test_the_report(
    observation: Observation, to_text: Callable[..., str], check_golden: Callable[[str, str], None]
) -> None:
    check_golden("report_observation.txt", to_text(render_observation(observation)))


def test_of_gpus_amounts_are_shares(observation: Observation, to_text: Callable[..., str]) -> None:
    recorded = replace(observation.recorded, gpus=1)
    text = to_text(render_observation(replace(observation, recorded=recorded)))
    assert "compute (GPU)" in text
    assert "98 %" in text


def test_a_failure_is_shown_first(observation: Observation, to_text: Callable[..., str]) -> None:
    assert "failed (exit code 2)" in to_text(render_observation(replace(observation, exit_code=2)))
    assert "failed (signal 9)" in to_text(render_observation(replace(observation, exit_code=-9)))


def test_the_window_shows_some_periods_or_all(observation: Observation) -> None:
    begin_s, end_s = find_window(observation)
    assert end_s - begin_s == pytest.approx(8 * 0.2)
    none = {resource: CycleSearch(cycle=None, why="it is constant") for resource in observation.cycles}
    assert find_window(replace(observation, cycles=none)) == (0.0, 10.0)


def test_columns_of_a_time_line_are_means() -> None:
    series = Series(times_s=np.array([0.0, 1.0, 2.0, 4.0]), values=np.array([1.0, 3.0, 0.0]))
    assert average(series, np.array([0.0, 2.0, 4.0])) == pytest.approx([2.0, 0.0])


def test_the_record_can_be_read_by_programs(observation: Observation) -> None:
    record = build_observation_record(observation)
    assert record["resources"]["transmit"]["cycle"]["share"] == pytest.approx(0.3)
    assert record["resources"]["compute"]["cycle"] is None
    assert record["period_s"] == 0.2
    assert record["disturbed"]
    assert render_json(record)


def test_bursts_are_shaded(observation: Observation) -> None:
    text = render_svg(draw_observation(observation))
    assert "torchrun train.py" in text
    assert "compute (CPU): no cycle found" in text
    assert "11.2 MB/s in bursts" in text
    none = {resource: CycleSearch(cycle=None, why="it is constant") for resource in observation.cycles}
    assert len(render_svg(draw_observation(replace(observation, cycles=none)))) > 1000


def test_one_sample_has_no_cost_of_sampling(observation: Observation, to_text: Callable[..., str]) -> None:
    moment = Series(times_s=np.array([0.0, 2e-4]), values=np.array([0.0]))
    recorded = replace(observation.recorded, cpu=moment, series={Resource.COMPUTE: moment})
    none = {Resource.COMPUTE: CycleSearch(cycle=None, why="only 1 sample was taken; 24 are needed")}
    text = to_text(render_observation(replace(observation, recorded=recorded, cycles=none)))
    assert "1 sample, one every 20 ms" in text
    assert "sampling took" not in text


def test_what_used_nothing_has_no_time_line(observation: Observation, to_text: Callable[..., str]) -> None:
    nothing = CycleSearch(cycle=None, why="nothing was used")
    series = {each: Series(times_s=TIMES_S, values=np.zeros(500)) for each in observation.cycles}
    idle = replace(
        observation,
        recorded=replace(observation.recorded, series=series),
        cycles=dict.fromkeys(observation.cycles, nothing),
    )
    assert "Time line" in to_text(render_observation(observation))
    assert "Time line" not in to_text(render_observation(idle))


@pytest.mark.parametrize("bytes_per_s", [0.0, 950.0, 1.12e7, 1.25e8, 1.25e9])
def test_rates_are_rendered_as_those_of_predictions(observation: Observation, bytes_per_s: float) -> None:
    setting = Setting(workers=2, link_bytes_per_s=1.25e8, device="T4")
    prediction = ConsumptionPrediction(
        workload=Workload(name="net", operators=(), batch=1),
        setting=setting,
        iteration=Estimate(value=1.0, low=0.9, high=1.1, level=0.9),
        compute_s=0.5,
        exposed_s=0.5,
    )
    observed = render_amount(Resource.TRANSMIT, bytes_per_s, observation)
    assert observed == consumption.render_amount(Resource.TRANSMIT, bytes_per_s, prediction) == render_rate(bytes_per_s)
