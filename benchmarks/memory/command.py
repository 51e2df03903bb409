"""The command ``python -m benchmarks memory``."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.memory.results import Result
from foretell.core.errors import ForetellError

EXAMPLES = """examples:
  python -m benchmarks memory                                   all parts; takes long
  python -m benchmarks memory --only timm                       unseen models: peaks as nvidia-smi shows them
"""
# Each part: its module, and the function that gives its rows.
PARTS = {
    "timm": "benchmarks.memory.timm_peaks:judge_timm",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--only", metavar="A,B", help=f"parts: {', '.join(PARTS)} (default: all)")


def run_command(arguments: argparse.Namespace) -> None:
    """Compare predictions with measurements, and print a table or JSON.

    Raises:
        SystemExit: The comparison cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        names = choose_parts(arguments.only)
        results = [result for name in names for result in _run(name)]
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump([asdict(result) for result in results], sys.stdout, indent=2)
        print()
    else:
        importlib.import_module("benchmarks.memory.table").print_results(results)


def choose_parts(text: str | None) -> list[str]:
    """Parts to run: those asked for; all of them without a choice."""
    if text is None:
        return list(PARTS)
    asked = [name.strip() for name in text.split(",")]
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise ValueError(f"no part named {unknown[0]!r}; known parts: {', '.join(PARTS)}")
    return asked


def _run(name: str) -> Sequence[Result]:
    module, _, function = PARTS[name].partition(":")
    print(f"{name} ...", file=sys.stderr, flush=True)
    found: Sequence[Result] = getattr(importlib.import_module(module), function)()
    return found
