"""This machine: what is known of it, and how fast it is."""

from foretell.core.errors import Mistake, SpecError
from foretell.core.run import Bench, Machine
from foretell.measure.machine import detect_machine, find_bench, make_bench_folder, save_bench
from foretell.measure.machine_benchmark import FULL_WORK, measure_bench


def bench_machine(*, repeats: int = 5) -> Bench:
    """How fast this machine does fixed work. Kept, unless there are warnings: runs made here then carry it.

    Raises:
        SpecError: if there are no repeats.
        OutputError: if it could not be kept.
    """
    if repeats < 1:
        mistake = Mistake(place="repeats", found=str(repeats), expected="a whole number from 1")
        raise SpecError("options", [mistake])
    make_bench_folder()  # before the measurement, which takes longer than to find out that it cannot be kept
    bench = measure_bench(FULL_WORK, repeats=repeats)
    if not bench.warnings:
        save_bench(bench)
    return bench


def describe_machine() -> tuple[Machine, Bench | None]:
    """The facts of this machine as runs made here carry them, and its bench if one was kept."""
    return detect_machine(), find_bench()
