from dataclasses import replace
from pathlib import Path

import pytest

from foretell.advice import api as advice
from foretell.advice.site_lookup import build_local_site
from foretell.core.errors import OutputError, SpecError
from foretell.core.run import Bench
from foretell.core.site import NodeType
from foretell.core.warning import PredictionWarning, build_warning
from foretell.measure import machine_benchmark as bench_module
from foretell.measure.machine import save_bench
from foretell.measure.machine_benchmark import Work, bench_machine, describe_machine, measure_bench

TINY = Work(rounds=1, array_bytes=1 << 12, sweeps=1, file_bytes=1 << 20)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def bench() -> Bench:
    return measure_bench(TINY, repeats=1)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("warnings", "kept"), [((), True), ((build_warning("busy-machine", "other processes used 1.2 of 2 cores"),), False)]
)
def test_only_a_benchmark_without_warnings_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, warnings: tuple[PredictionWarning, ...], kept: bool
) -> None:
    monkeypatch.setattr(bench_module, "measure_bench", lambda work, repeats: replace(bench, warnings=warnings))
    assert bench_machine().warnings == warnings
    assert (describe_machine()[1] is not None) is kept


def test_nothing_is_measured_if_it_cannot_be_stored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_text("a file")
    monkeypatch.setattr(bench_module, "measure_bench", lambda work, repeats: pytest.fail("it was measured"))
    with pytest.raises(OutputError):
        bench_machine()


def test_no_repeats_are_refused() -> None:
    with pytest.raises(SpecError, match="repeats"):
        bench_machine(repeats=0)


@pytest.mark.usefixtures("cache")
def test_predictions_for_this_machine_use_its_benchmark(bench: Bench) -> None:
    save_bench(bench)
    machine, known = describe_machine()
    assert known == bench
    (node,) = build_local_site(machine).node_types
    assert bench.figures.items() <= advice.machine_of(node).extra.items()


def test_predictions_for_a_node_type_without_a_benchmark() -> None:
    assert advice.machine_of(NodeType(name="n", partition="n", cores=1, memory_bytes=1)).extra == {}
