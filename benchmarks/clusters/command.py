"""The command ``python -m benchmarks clusters``: predicts measured steps on GPU clusters."""

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
  python -m benchmarks clusters more dgx       more GPUs than measured; the cluster dgx, held back
  python -m benchmarks clusters two_nodes      small tables, of two nodes at most: twice as many GPUs
  python -m benchmarks clusters more --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "questions", nargs="*", metavar="QUESTION", help=f"which of {', '.join(QUESTIONS)}; default: all"
    )


def run_command(arguments: argparse.Namespace) -> None:
    """Run the questions, and print tables or JSON.

    Raises:
        SystemExit: A question is unknown, or the data is missing.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Late, so that --help is quick.
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
