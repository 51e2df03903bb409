"""The command ``python -m benchmarks consumption``: compares methods on measured trainings."""

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
  python -m benchmarks consumption --methods timeline,bandwidth --json
  python -m benchmarks consumption --transfer                  each setting in turn: a few jobs there, or from scratch
  python -m benchmarks consumption --end-to-end --plot FILE   four networks, predicted and then trained here (root)
  python -m benchmarks consumption --jobs jobs.jsonl          trainings of 'python -m lab measure --out jobs.jsonl'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--methods", metavar="M,N", help="which methods: timeline, driple, totals, bandwidth; default: all"
    )
    parser.add_argument("--epochs", type=int, default=300, help="of the published method (%(default)s)")
    parser.add_argument("--transfer", action="store_true", help="hold back each setting, and transfer to it")
    parser.add_argument(
        "--end-to-end", action="store_true", help="predict four networks on a new link, then train them"
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="with --end-to-end: predict for it; default: this machine's core, learned first",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="with --end-to-end: a plot of both")
    parser.add_argument("--jobs", type=Path, metavar="FILE", help="other measured jobs, of 'python -m lab measure'")


def run_command(arguments: argparse.Namespace) -> None:
    """Run the comparison, and print tables or JSON.

    Raises:
        SystemExit: The comparison is not possible.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    compare = _test_end_to_end if arguments.end_to_end else _transfer if arguments.transfer else _compare
    try:
        found, show = compare(arguments)
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show()


Result = tuple[dict[str, Any], Callable[[], None]]  # as JSON, and what prints the tables


def _import(name: str) -> Any:
    """Late, so that --help is quick."""
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


def _test_end_to_end(arguments: argparse.Namespace) -> Result:
    end_to_end = _import("end_to_end")
    trained = end_to_end.train_networks(arguments.device)
    rows = end_to_end.compare(trained)
    about = end_to_end.summarise(rows, trained)
    if arguments.plot:
        end_to_end.plot(trained, arguments.plot)
    return end_to_end.record(rows, about), partial(_import("table").print_compared, rows, about)


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None
