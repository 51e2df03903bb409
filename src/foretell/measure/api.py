"""The functions that describe and benchmark this machine."""

from foretell.core.errors import Mistake, SpecError
from foretell.core.run import Bench, Machine
from foretell.measure.machine import detect_machine, find_bench, make_bench_folder, save_bench
from foretell.measure.machine_benchmark import FULL_WORK, measure_bench


def bench_machine(*, repeats: int = 5) -> Bench:
    """Measure how fast this machine does fixed work. The result is stored with later runs, unless there are warnings.

    Raises:
        SpecError: if there are no repeats.
        OutputError: if it could not be stored.
    """
    if repeats < 1:
        mistake = Mistake(place="repeats", found=str(repeats), expected="a whole number from 1")
        raise SpecError("options", [mistake])
    make_bench_folder()  # before the measurement, which takes longer than this check
    bench = measure_bench(FULL_WORK, repeats=repeats)
    if not bench.warnings:
        save_bench(bench)
    return bench


def describe_machine() -> tuple[Machine, Bench | None]:
    """Return the facts of this machine that are stored with runs, and its benchmark if there is one."""
    return detect_machine(), find_bench()
