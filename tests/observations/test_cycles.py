import numpy as np
import numpy.typing as npt
import pytest
from benchmarks.observe_series import STEP_S, Wave, make_wave, make_without

from foretell.core.observation import Cycle, Series
from foretell.observations.cycles import search_cycle

RNG_SEED = 7


def find_cycle(series: Series, *, least_s: float = 0.0, seed: int = 0) -> Cycle | None:
    return search_cycle(series, least_s=least_s, seed=seed).cycle


def rng() -> np.random.Generator:
    return np.random.default_rng(RNG_SEED)


@pytest.mark.parametrize("kind", ["shuffled", "constant", "walk", "memory"])
def test_no_cycle_is_found_where_there_is_none(kind: str) -> None:
    random = rng()
    assert not any(find_cycle(make_without(kind, random, samples=600), seed=number) for number in range(12))


@pytest.mark.parametrize(
    "wave",
    [
        Wave(period=7.3, duty=0.4),
        Wave(period=12, duty=0.3, noise=0.1, jitter=0.02),
        Wave(period=25, duty=0.1, noise=0.05, jitter=0.02),
        Wave(period=25, duty=0.9, noise=0.05, jitter=0.02),
        Wave(period=60, duty=0.5, noise=0.2, jitter=0.03),
        Wave(period=50, duty=0.2, low=0.0, high=125e6, noise=0.02, jitter=0.03),
    ],
)
def test_a_cycle_is_found_to_the_sample(wave: Wave) -> None:
    truth = make_wave(wave, rng(), samples=1200)
    cycle = find_cycle(truth.series)
    assert cycle is not None
    assert cycle.burst_s == pytest.approx(truth.burst * STEP_S, abs=STEP_S)
    assert cycle.idle_s == pytest.approx((truth.period - truth.burst) * STEP_S, abs=STEP_S)
    assert cycle.period_s == pytest.approx(cycle.burst_s + cycle.idle_s)
    assert cycle.burst_amount == pytest.approx(wave.high, rel=0.03)
    assert cycle.idle_amount == pytest.approx(wave.low, abs=0.03 * wave.high)
    assert cycle.chance <= 0.01


def test_edges_within_samples_do_not_lengthen_bursts() -> None:
    wave = Wave(period=11.37, duty=3.2 / 11.37, low=0.0)
    cycle = find_cycle(make_wave(wave, rng(), samples=1200).series)
    assert cycle is not None
    assert cycle.burst_s == pytest.approx(3.2 * STEP_S, rel=0.02)
    assert cycle.burst_amount == pytest.approx(1.0, rel=0.01)


def test_bursts_shorter_than_two_samples_are_measured_by_their_edges() -> None:
    wave = Wave(period=11.37, duty=1.3 / 11.37, low=0.0, jitter=0.02)
    cycle = find_cycle(make_wave(wave, rng(), samples=2000).series)
    assert cycle is not None
    assert cycle.burst_s == pytest.approx(1.3 * STEP_S, rel=0.1)
    assert cycle.burst_amount == pytest.approx(1.0, rel=0.1)


def test_buckets_of_an_iteration_are_added() -> None:
    wave = Wave(period=80, duty=0.3, noise=0.03, jitter=0.01, low=0.0, buckets=4)
    truth = make_wave(wave, rng(), samples=2000)
    cycle = find_cycle(truth.series)
    assert cycle is not None
    assert cycle.period_s == pytest.approx(truth.period * STEP_S, rel=0.02)
    assert cycle.burst_s == pytest.approx(truth.burst * STEP_S, rel=0.05)
    assert cycle.bursts == pytest.approx(4 * 2000 / 80, abs=8)


def test_pauses_shorter_than_the_least_belong_to_the_burst() -> None:
    wave = Wave(period=80, duty=0.3, jitter=0.01, low=0.0, buckets=4)
    cycle = find_cycle(make_wave(wave, rng(), samples=2000).series, least_s=6 * STEP_S)
    assert cycle is not None
    assert cycle.burst_s == pytest.approx((0.3 + 0.2 * 0.7) * 80 * STEP_S, rel=0.05)
    assert cycle.burst_amount == pytest.approx(0.3 / 0.44, rel=0.05)


def test_a_beginning_without_a_cycle_does_not_hide_it() -> None:
    truth = make_wave(Wave(period=30, duty=0.4, noise=0.05, low=0.2), rng(), samples=900)
    values = np.concatenate((np.full(300, 1.0), truth.series.values))
    cycle = find_cycle(Series(times_s=STEP_S * np.arange(1201.0), values=values))
    assert cycle is not None
    assert cycle.period_s == pytest.approx(30 * STEP_S, rel=0.02)
    assert cycle.share == pytest.approx(0.4, abs=0.03)


def test_a_period_longer_than_what_is_tested_at_once_is_found() -> None:
    wave = Wave(period=2500, duty=0.3, noise=0.05, jitter=0.01)
    cycle = find_cycle(make_wave(wave, rng(), samples=100_000).series)
    assert cycle is not None
    assert cycle.period_s == pytest.approx(2500 * STEP_S, rel=0.02)


@pytest.mark.parametrize("dip", [0.1, 0.4])
def test_nothing_is_used_less_than_not_at_all(dip: float) -> None:
    values = np.tile([1.0] * 18 + [dip], 40) + 0.02 * rng().standard_normal(760)
    values[::95] += 0.5
    cycle = find_cycle(Series(times_s=STEP_S * np.arange(761.0), values=values))
    assert cycle is not None
    assert cycle.idle_amount >= 0


def test_samples_far_apart_are_no_harm() -> None:
    truth = make_wave(Wave(period=30, duty=0.4, low=0.0), rng(), samples=1200)
    kept = np.delete(np.arange(1201), [200, 201, 202, 600])  # somebody else had the core
    used = np.concatenate(([0.0], np.cumsum(truth.series.values * np.diff(truth.series.times_s))))
    times_s = truth.series.times_s[kept]
    cycle = find_cycle(Series(times_s=times_s, values=np.diff(used[kept]) / np.diff(times_s)))
    assert cycle is not None
    assert cycle.burst_s == pytest.approx(12 * STEP_S, rel=0.03)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.ones(10), "only 10 samples were taken"),
        (np.zeros(200), "nothing was used"),
        (np.ones(200), "constant"),
        (np.random.default_rng(1).standard_normal(200), "no more periodic than noise"),
        (np.append(np.ones(10), np.zeros(190)), "no more periodic than noise"),
        (np.append(np.zeros(48), [1.0, 0.0]), "no more periodic than noise"),
    ],
)
def test_without_a_cycle_there_is_a_reason(values: np.ndarray, why: str) -> None:
    found = search_cycle(Series(times_s=np.arange(len(values) + 1.0), values=values))
    assert found.cycle is None
    assert why in found.why


def test_bursts_are_where_they_are_drawn() -> None:
    values = np.tile(np.repeat([1.0, 0.0], [4, 6]), 30)
    found = search_cycle(Series(times_s=STEP_S * np.arange(301.0), values=values))
    assert found.cycle is not None
    assert found.bursts[0] == pytest.approx((10 * STEP_S, 14 * STEP_S))  # the first began before we looked
    assert len(found.bursts) == 29


@pytest.mark.parametrize("step_s", [0.01, 0.0203])
@pytest.mark.parametrize("cores", [1, 4])
def test_the_beat_of_a_clock_that_ticks_is_no_cycle(step_s: float, cores: int) -> None:
    times: npt.NDArray[np.float64] = np.arange(600, dtype=float) * step_s
    counted = cores * np.floor(times / 0.004) * 0.004  # of somebody who never pauses
    series = Series(times_s=times, values=np.diff(counted) / step_s)
    assert find_cycle(series) is not None
    assert search_cycle(series, grain_s=0.004).cycle is None


def test_what_is_counted_late_does_not_hide_idles() -> None:
    times: npt.NDArray[np.float64] = np.arange(1500, dtype=float) * 0.01
    used = np.minimum(times % 0.15, 0.12) + 0.12 * np.floor(times / 0.15)
    counted = np.floor(used / 0.004) * 0.004
    cycle = search_cycle(Series(times_s=times, values=np.diff(counted) / 0.01), grain_s=0.004).cycle
    assert cycle is not None
    assert cycle.period_s == pytest.approx(0.15, abs=0.002)
    assert cycle.idle_s == pytest.approx(0.03, abs=0.01)
    assert cycle.burst_amount == pytest.approx(1.0, rel=0.05)


def test_small_bursts_of_who_rests_between_are_no_beat() -> None:
    values = np.tile([0.3, 0.3, 0.3, 0.0, 0.0, 0.0, 0.0], 60)
    times: npt.NDArray[np.float64] = np.arange(len(values) + 1, dtype=float) * 0.02
    assert search_cycle(Series(times_s=times, values=values), grain_s=0.004).cycle is not None
