"""``python -m lab measure``: runs distributed trainings on this machine and records what they consume."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.core.errors import ForetellError
from foretell.core.units import parse_rate

if TYPE_CHECKING:
    from foretell.distributed.consumption import Setting
    from lab.training_jobs import JobProgress

EXAMPLES = """examples:
  foretell device learn                                          first: the times of this machine's cores, as device cpu
  sudo python -m lab measure --out jobs.jsonl --minutes 20 --workers 2 --link 1Gb --device cpu
  sudo python -m lab measure --out jobs.jsonl --strategy ps --servers 2 --link 500Mb --device cpu
  foretell consumption learn --jobs jobs.jsonl --name lab        then: fit a model to the measured trainings

Links of a rate need root on Linux, with iproute2. Without --link, workers use the loopback: then the iteration and
compute are measured, but not what each worker sends. The same command resumes after an interruption.
"""
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of the lab; returns the exit code."""
    options = _build_parser().parse_args(arguments)
    try:
        return _measure(options)
    except (ForetellError, ValueError) as exc:
        _note(f"error: {exc}")
        return 1
    except KeyboardInterrupt:
        _note("Stopped. The measured trainings are in the file; the same command resumes.")
        return _INTERRUPTED


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description="Make measurements that models are fitted to.")
    commands = parser.add_subparsers(title="commands", required=True)
    measure = commands.add_parser(
        "measure",
        help="run distributed trainings and record what they consume",
        description="Train small random networks on this machine, and record what the first worker consumes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = measure.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="JSON lines; measured trainings are appended")
    add("--device", required=True, metavar="NAME", help="this machine's core, as 'foretell device list' names it")
    add("--minutes", type=_parse_positive(float), metavar="N", help="start no training after so many minutes")
    add("--jobs", type=_parse_positive(int), default=20, metavar="N", help="trainings (%(default)s)")
    add("--repetitions", type=_parse_positive(int), default=1, metavar="N", help="of each training (%(default)s)")
    add("--workers", type=int, default=2, metavar="N", help="each with a link of its own (%(default)s)")
    add("--strategy", default="allreduce", choices=("allreduce", "ps"), help="ps: parameter servers (%(default)s)")
    add("--servers", type=int, metavar="N", help="parameter servers, each with a link of its own (1 with ps)")
    add("--asynchronous", action="store_true", help="workers do not wait for each other, with ps")
    add("--link", type=parse_rate, metavar="RATE", help="what each sends and receives, such as 1Gb (loopback)")
    add("--seed", type=int, default=7, metavar="N", help="of the random networks (%(default)s)")
    add("--folder", type=Path, default=Path(".foretell"), metavar="DIR", help="with the learned devices (%(default)s)")
    return parser


def _parse_positive(parse: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        number = parse(text)
        if not number > 0:
            raise argparse.ArgumentTypeError(f"{text!r}; expected a number above 0")
        return number

    return read


def _measure(options: argparse.Namespace) -> int:
    from foretell.workloads.api import require_torch

    require_torch()
    from lab.measuring import measure_jobs, place_setting

    setting = place_setting(_build_setting(options), folder=options.folder)
    _note("Measuring: do not use this machine meanwhile. Ctrl-C keeps what was measured.")
    rows = measure_jobs(
        options.out,
        [setting],
        jobs=options.jobs,
        repetitions=options.repetitions,
        seed=options.seed,
        budget_s=60 * options.minutes if options.minutes else float("inf"),
        on_progress=lambda progress: _note(describe_progress(progress)),
    )
    disturbed = sum(row.disturbed for row in rows)
    print(f"{options.out}: {len(rows)} measured trainings, {disturbed} of them disturbed by other processes.")
    print(f"Fit a model to them with: foretell consumption learn --jobs {options.out}")
    return 0 if rows else 1


def _build_setting(options: argparse.Namespace) -> "Setting":
    from foretell.distributed.consumption import Setting, Strategy

    strategy = Strategy(options.strategy)
    default = 1 if strategy is Strategy.SERVERS else 0
    return Setting(
        strategy=strategy,
        workers=options.workers,
        servers=default if options.servers is None else options.servers,
        synchronous=not options.asynchronous,
        link_bytes_per_s=options.link,
        device=options.device,
    )


def describe_progress(progress: "JobProgress") -> str:
    """``12/20 conv 11: 84.2 ms an iteration, undisturbed``."""
    from foretell.core.render.phrases import clean_line, render_short_time

    place = f"{progress.done}/{progress.total}"
    if progress.iteration_s is None:
        return clean_line(f"{place} number {progress.number}: failed ({progress.failed})")
    state = "disturbed by other processes" if progress.disturbed else "undisturbed"
    return (
        f"{place} {progress.family} {progress.number}: {render_short_time(progress.iteration_s)} an iteration, {state}"
    )


def _note(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
