from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from foretell.core.app import Value
from foretell.core.run import Bench, Machine
from foretell.core.warning import build_warning
from foretell.measure.render import build_machine_record, render_bench, render_machine

Golden = Callable[[str, str], None]
ToText = Callable[..., str]


@pytest.fixture
def bench() -> Bench:
    return Bench(
        bench_version=1,
        bench_s=0.6743,
        bench_core_s=1.0821,
        bench_cores_s=1.3312,
        bench_memory_s=0.4202,
        bench_disk_s=0.0651,
        spread={"bench_core_s": 0.004, "bench_cores_s": 0.021, "bench_memory_s": 0.012, "bench_disk_s": 0.192},
        repeats=5,
        busy_cores=0.04,
        warnings=(),
        hostname="lab",
        cpu_model="Some CPU [v2]",
        cores=16,
        software="Python 3.12.1, numpy 2.1.0, scipy 1.14.0, zlib 1.3",
        measured_at=datetime(2025, 3, 14, 12, 0, tzinfo=UTC),
    )


@pytest.fixture
def machine(bench: Bench) -> Machine:
    extra: dict[str, Value] = {"physical_cores": 8, "architecture": "x86_64", **bench.figures}
    return Machine(hostname="lab", cpu_model="Some CPU [v2]", cores=16, cpu_mhz=2400.0, memory_bytes=2**36, extra=extra)


def test_bench(bench: Bench, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_bench.txt", to_text(render_bench(bench)))


def test_a_disturbed_bench_says_why_and_what_to_do(bench: Bench, to_text: ToText) -> None:
    text = to_text(
        render_bench(replace(bench, warnings=(build_warning("busy-machine", "other processes used 3.1 of 16 cores"),)))
    )
    assert "other processes used 3.1 of 16 cores" in text
    assert "Not kept: measure again" in text


def test_a_disk_that_was_not_measured_says_so(bench: Bench, to_text: ToText) -> None:
    assert "not measured" in to_text(render_bench(replace(bench, bench_disk_s=None, spread={})))


def test_machine(machine: Machine, bench: Bench, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_machine.txt", to_text(render_machine(machine, bench)))


def test_a_machine_of_which_nothing_is_known(to_text: ToText) -> None:
    assert "'foretell machine bench' makes one" in to_text(render_machine(Machine(), None))


def test_the_record_has_all_of_it(machine: Machine, bench: Bench) -> None:
    record = build_machine_record(machine, bench)
    assert (record["hostname"], record["bench"]["bench_s"]) == ("lab", bench.bench_s)
    assert build_machine_record(machine, None)["bench"] is None
