"""The command ``python -m benchmarks ets``."""

import argparse
import importlib
import json
import os
import sys

from foretell.core.errors import ForetellError

EXAMPLES = """examples:
  python -m benchmarks ets                                     unseen families on the T4, every method
  python -m benchmarks ets --methods roofline,regression --sample 20
  python -m benchmarks ets --train-families ResNet,ConvNext --test-families VGG,ViT
  python -m benchmarks ets --split random --json
  python -m benchmarks ets --transfer 2080Ti                   fit on the T4, predict the 2080 Ti
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--gpu", default="T4", help="the GPU of the traces: T4 or 2080Ti (%(default)s)")
    parser.add_argument(
        "--train-families", metavar="A,B", help="families for fitting; default: those of the published split"
    )
    parser.add_argument(
        "--test-families", metavar="C,D", help="families to predict; default: those of the published split"
    )
    parser.add_argument("--methods", metavar="M,N", help="the methods to compare; default: all")
    parser.add_argument(
        "--split",
        choices=("families", "random"),
        default="families",
        help="predict other families, or a random tenth of all traces (%(default)s)",
    )
    parser.add_argument("--sample", type=_count, metavar="N", help="only N traces of each family, for a quick check")
    parser.add_argument("--draws", type=_count, default=5, help="number of random draws of profiles (%(default)s)")
    parser.add_argument("--transfer", metavar="GPU", help="predict the test families on another GPU")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1")
    return int(text)


def run_command(arguments: argparse.Namespace) -> None:
    """Compare the methods, and print tables or JSON.

    Raises:
        SystemExit: The comparison cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Imported late, so that --help is fast.
    comparison, methods, table = (
        importlib.import_module(f"benchmarks.ets.{name}") for name in ("comparison", "methods", "table")
    )
    try:
        plan = comparison.Plan(
            gpu=arguments.gpu,
            train=_split(arguments.train_families),
            test=_split(arguments.test_families),
            random=arguments.split == "random",
            sample=arguments.sample,
            draws=arguments.draws,
            transfer=arguments.transfer,
        )
        rows, about = comparison.compare(plan, methods.choose_methods(arguments.methods))
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump(table.record_rows(rows, about), sys.stdout, indent=2)
        print()
    else:
        table.print_rows(rows, about)


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None
