"""``python -m benchmarks consumption``: what is asked for, who does it, what is printed."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from foretell.core.errors import ForetellError

EXAMPLES = """examples:
  python -m benchmarks consumption                             each family in turn, every method
  python -m benchmarks consumption --methods physics,bandwidth --json
  python -m benchmarks consumption --transfer                  each setting in turn: a few jobs there, or from scratch
  python -m benchmarks consumption --end-to-end --plot told.png  four networks, told and then trained here (root)
  python -m benchmarks consumption --jobs .foretell/consumption/here.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--methods", metavar="M,N", help="which methods: physics, driple, totals, bandwidth; all unless said"
    )
    parser.add_argument("--epochs", type=int, default=300, help="of the published method (%(default)s)")
    parser.add_argument("--transfer", action="store_true", help="carry what was learned to a setting never seen")
    parser.add_argument("--end-to-end", action="store_true", help="tell four networks on a new link, then train them")
    parser.add_argument(
        "--device", metavar="NAME", help="with --end-to-end: tell as if on it; the core at hand is learned unless said"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="with --end-to-end: a picture of both")
    parser.add_argument(
        "--jobs", type=Path, metavar="FILE", help="other measured jobs, of 'foretell consumption learn'"
    )


def run_command(arguments: argparse.Namespace) -> None:
    """Compare as asked, and print tables or an object.

    Raises:
        SystemExit: if what was asked for cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    way = _hold if arguments.end_to_end else _transfer if arguments.transfer else _compare
    try:
        found, show = way(arguments)
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show()


Result = tuple[dict[str, Any], Callable[[], None]]  # for programs, and what prints it for people


def _import(name: str) -> Any:
    """Late, so that --help does not wait for what computes."""
    return importlib.import_module(f"benchmarks.consumption.{name}")


def _compare(arguments: argparse.Namespace) -> Result:
    comparison, data = _import("comparison"), _import("data")
    methods = _split(arguments.methods) or tuple(comparison.METHODS)
    path = arguments.jobs or data.JOBS
    figures, about = comparison.compare(methods, jobs_path=path, epochs=arguments.epochs)
    return comparison.record(figures, about), partial(_import("table").print_figures, figures, about)


def _transfer(arguments: argparse.Namespace) -> Result:
    transfer, data = _import("transfer"), _import("data")
    methods = _split(arguments.methods) or transfer.TRANSFERABLE
    points, about = transfer.compare_transfer(methods, jobs_path=arguments.jobs or data.JOBS)
    return transfer.record_transfer(points, about), partial(_import("table").print_transfer, points, about)


def _hold(arguments: argparse.Namespace) -> Result:
    held = _import("end_to_end")
    tried = held.try_networks(arguments.device)
    rows = held.hold(tried)
    about = held.summarise(rows, tried)
    if arguments.plot:
        held.plot(tried, arguments.plot)
    return held.record(rows, about), partial(_import("table").print_held, rows, about)


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None
