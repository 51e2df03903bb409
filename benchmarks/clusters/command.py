"""``python -m benchmarks clusters``: what is asked for, who does it, what is printed."""

import argparse
import importlib
import json
import os
import sys

from foretell.core.errors import ForetellError

FOLDER, FILE = "sia_pollux", "step_times.csv"
QUESTIONS = ("one_node", "two_nodes", "more", "aws", "rtx", "dgx", "quad", "azure")
EXAMPLES = """examples:
  python -m benchmarks clusters                every question, within minutes
  python -m benchmarks clusters more dgx       more GPUs than were seen; the cluster dgx, never seen
  python -m benchmarks clusters two_nodes      small tables, of two nodes at most: twice as many GPUs
  python -m benchmarks clusters more --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "questions", nargs="*", metavar="QUESTION", help=f"which of {', '.join(QUESTIONS)}; all unless said"
    )


def run_command(arguments: argparse.Namespace) -> None:
    """Answer as asked, and print tables or an object.

    Raises:
        SystemExit: if what was asked for cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Late, so that --help does not wait for what computes.
    questions = importlib.import_module("benchmarks.clusters.questions")
    cases = importlib.import_module("benchmarks.runs.cases")
    try:
        asked = _choose(arguments.questions)
        rows = questions.read_rows(cases.find_folder(FOLDER) / FILE)
        record = questions.run_questions(rows, asked)
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump(record, sys.stdout, indent=2)
        print()
    else:
        questions.print_record(record)


def _choose(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in QUESTIONS]
    if unknown:
        raise ValueError(f"no question named {unknown[0]!r}; known questions: {', '.join(QUESTIONS)}")
    return list(dict.fromkeys(names)) or list(QUESTIONS)
