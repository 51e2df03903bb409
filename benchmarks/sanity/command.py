"""The command ``python -m benchmarks sanity``."""

import argparse
import importlib
import json
import os
import sys

from foretell.core.errors import ForetellError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", metavar="A,B", help="only these models")
    parser.add_argument("--devices", metavar="C,D", help="only these devices")
    parser.add_argument("--labels", metavar="FILE", help="other published pairs, in the format of published.toml")
    parser.add_argument("--kernels", action="store_true", help="also print what each kind of kernel takes")
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation")


def run_command(arguments: argparse.Namespace) -> None:
    """Predict the pairs, and print a table or JSON.

    Raises:
        SystemExit: A pair cannot be predicted.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    pairs, table = (importlib.import_module(f"benchmarks.sanity.{name}") for name in ("pairs", "table"))
    try:
        chosen = pairs.choose_pairs(arguments.labels, models=arguments.models, devices=arguments.devices)
        results = [pairs.predict_pair(pair) for pair in chosen]
    except (OSError, ValueError, LookupError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump(table.record_results(results), sys.stdout, indent=2)
        print()
    elif arguments.markdown:
        print(table.render_markdown(results))
    else:
        table.print_results(results, kernels=arguments.kernels)
