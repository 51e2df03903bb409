"""Fixed work on this machine; amounts are tiny, and only what holds at any speed is checked."""

import dataclasses
import json
import math
import os
import socket
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.errors import OutputError
from foretell.core.run import BENCH_FIGURES, BENCH_VERSION, Bench
from foretell.core.serialization import to_record
from foretell.measure import machine_benchmark as bench_module
from foretell.measure.machine import detect_machine, find_bench, save_bench
from foretell.measure.machine_benchmark import Work, compute_spread, list_bench_warnings, measure_bench

TINY = Work(rounds=1, array_bytes=1 << 12, sweeps=1, file_bytes=1 << 20)
QUIET = {"bench_core_s": 0.0, "bench_cores_s": 0.0, "bench_memory_s": 0.0, "bench_disk_s": 0.0}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def bench() -> Bench:
    return measure_bench(TINY, repeats=3)


class TestMeasuring:
    def test_every_kind_of_work_takes_time(self, bench: Bench) -> None:
        assert all(bench.figures[name] > 0 for name in BENCH_FIGURES)
        assert set(bench.spread) == {*BENCH_FIGURES} - {"bench_s"}
        assert bench.cores == len(os.sched_getaffinity(0))

    def test_the_composite_is_the_geometric_mean_of_core_and_memory(self, bench: Bench) -> None:
        assert bench.bench_s == pytest.approx(math.sqrt(bench.bench_core_s * bench.bench_memory_s))

    def test_results_have_a_version(self, bench: Bench) -> None:
        assert bench.figures["bench_version"] == BENCH_VERSION

    def test_medians_ignore_one_disturbed_repeat(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seconds = iter([9.0, 1.0, 8.0, 1.0, 1.0, 1.0])  # the first is a warm-up
        monkeypatch.setattr(bench_module, "_build_tasks", lambda work, cores: _build_fake_tasks(seconds))
        found = measure_bench(TINY, repeats=5)
        assert found.bench_core_s == 1.0
        assert found.spread["bench_core_s"] == 0.0

    def test_more_work_is_more_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []
        monkeypatch.setattr(zlib, "compress", lambda text, level: calls.append(len(text)))
        bench_module._Compute().run(3)
        assert calls == [1 << 17] * 3

    def test_without_disk_space_the_rest_is_still_measured(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        found = measure_bench(TINY, repeats=1)
        assert found.bench_disk_s is None
        assert "bench_disk_s" not in {*found.figures, *found.spread}
        assert found.bench_s > 0


def _build_fake_tasks(core_seconds: Iterator[float]) -> dict[str, Callable[[], float]]:
    return {**dict.fromkeys(QUIET, lambda: 2.0), "bench_core_s": lambda: next(core_seconds)}


class TestWarnings:
    def test_an_idle_machine_gives_no_warning(self) -> None:
        assert list_bench_warnings(busy_cores=0.1, cores=4, spread=QUIET, repeats=5) == ()

    def test_load_of_others_gives_a_warning(self) -> None:
        (warning,) = list_bench_warnings(busy_cores=1.25, cores=4, spread=QUIET, repeats=5)
        assert warning.text == "other processes used 1.2 of 4 cores"

    def test_a_large_node_may_have_more_load(self) -> None:
        assert list_bench_warnings(busy_cores=1.25, cores=64, spread=QUIET, repeats=5) == ()

    @pytest.mark.parametrize(("name", "warnings"), [("bench_core_s", 1), ("bench_memory_s", 1), ("bench_disk_s", 0)])
    def test_unsteady_repeats_give_a_warning_except_on_disk(self, name: str, warnings: int) -> None:
        assert len(list_bench_warnings(busy_cores=0.0, cores=4, spread={**QUIET, name: 0.3}, repeats=5)) == warnings

    def test_few_repeats_give_a_warning(self) -> None:
        assert "3 or more" in list_bench_warnings(busy_cores=0.0, cores=4, spread=QUIET, repeats=2)[0].text

    @given(st.lists(st.floats(0.1, 10), min_size=1), st.floats(0.01, 100))
    def test_spread_does_not_depend_on_the_unit(self, values: Any, factor: Any) -> None:
        assert compute_spread([value * factor for value in values]) == pytest.approx(compute_spread(values), abs=1e-9)


@pytest.mark.usefixtures("cache")
class TestStoredBenchmark:
    def test_without_a_benchmark_the_machine_is_unchanged(self) -> None:
        assert find_bench() is None
        assert set(detect_machine().extra) == {"physical_cores", "architecture"}

    def test_a_stored_benchmark_is_found_and_part_of_the_facts(self, bench: Bench) -> None:
        save_bench(bench)
        assert find_bench() == bench
        assert bench.figures.items() <= detect_machine().extra.items()

    def test_the_result_of_all_cores_applies_to_the_same_number_of_cores(self, bench: Bench) -> None:
        save_bench(dataclasses.replace(bench, cores=bench.cores + 1))
        assert {*bench.figures} - {*detect_machine().extra} == {"bench_cores_s"}

    def test_another_machine_with_the_same_home_has_its_own(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_bench(bench)
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        assert find_bench() is None

    def test_another_version_is_not_used(self, bench: Bench) -> None:
        save_bench(dataclasses.replace(bench, bench_version=BENCH_VERSION + 1))
        assert find_bench() is None

    @pytest.mark.parametrize("damage", [{"bench_s": None}, {"bench_s": -1.0}, {"bench_core_s": "soon"}, {"spread": 3}])
    def test_damaged_figures_are_not_used(self, bench: Bench, cache: Path, damage: Any) -> None:
        save_bench(bench)
        (path,) = cache.rglob("*.json")
        path.write_text(json.dumps({**to_record(bench), **damage}))
        assert find_bench() is None

    @pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", "\xff"])
    def test_a_broken_file_is_not_used(self, bench: Bench, cache: Path, text: str) -> None:
        save_bench(bench)
        (path,) = cache.rglob("*.json")
        path.write_text(text, "latin-1")
        assert find_bench() is None

    def test_an_unwritable_folder_is_named_with_a_remedy(self, bench: Bench, cache: Path) -> None:
        cache.write_text("a file")
        with pytest.raises(OutputError, match="FORETELL_CACHE"):
            save_bench(bench)


def test_the_user_can_choose_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bench: Bench) -> None:
    monkeypatch.delenv("FORETELL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_bench(bench)
    assert len(list((tmp_path / "foretell" / "machines").iterdir())) == 1
