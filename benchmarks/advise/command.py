"""The command ``python -m benchmarks advise``."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretell.core.errors import ForetellError

EXAMPLES = """examples:
  python -m benchmarks advise                             throughputs and whole jobs that others measured, and the pick
  python -m benchmarks advise --only flagperf,jobs --details
  python -m benchmarks advise --only recipes              ten well-known recipes against public figures
  python -m benchmarks advise --only one-run              what one measured run is worth
  python -m benchmarks advise --only end-to-end           a training on a Slurm cluster of this machine
  python -m benchmarks advise --only speed                the time of an answer, against that of a capture
  python -m benchmarks advise --labels mine.csv           your own measured trainings

a file of labels is CSV with the columns device, gpus, model, input, precision and one of
  rate      examples a second of all GPUs
  seconds   of a step
  total_s   of the whole job, with samples (of an epoch) and optionally epochs
as in
  H100,8,config.json,"16,1024:int64:50257",bf16,812
and optionally layout (ddp), accumulation, checkpointing, optimizer, gpus_per_node, and task: rows of the same task are
choices, among which the predicted best is compared with the best. model is a source of 'foretell workload predict', and
input one batch of one GPU
"""
_STEPS = {"flagperf": "flagperf_jobs", "examples": "deeplearning_examples", "mlperf": "mlperf_jobs"}
PARTS = (*_STEPS, "jobs", "pick", "recipes", "one-run", "shared-errors", "end-to-end", "speed")
_USUAL = (*_STEPS, "jobs", "pick")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--only", metavar="A,B", help=f"parts: {', '.join(PARTS)} (default: {', '.join(_USUAL)})")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="measured trainings of your own")
    parser.add_argument("--details", action="store_true", help="print each row instead, separated by tabs")
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation, for recipes")


def run_command(arguments: argparse.Namespace) -> None:
    """Compare predictions with measurements, and print tables, JSON or each row.

    Raises:
        SystemExit: The comparison cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        names = choose_parts(arguments.only, labels=arguments.labels is not None)
        if names and names[0] in _ALONE:
            _run_alone(names[0], arguments)
            return
        _run(names, arguments)
    except (ImportError, OSError, ValueError, LookupError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc


def choose_parts(text: str | None, *, labels: bool) -> list[str]:
    """Parts to run: those asked for; the usual ones, or none if there are labels of the user's.

    Raises:
        ValueError: There is no such part, or it is one that runs by itself.
    """
    if text is None:
        return [] if labels else list(_USUAL)
    asked = [name.strip() for name in text.split(",")]
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise ValueError(f"no part named {unknown[0]!r}; known parts: {', '.join(PARTS)}")
    alone = [name for name in asked if name in _ALONE]
    if alone and len(asked) > 1:
        raise ValueError(f"{alone[0]!r} has a table of its own; ask for it alone")
    return asked


# Parts with tables of their own: the module, what gives its rows, and what prints them
_ALONE = {
    "one-run": ("one_run", "judge_one_run", "print_one_run"),
    "shared-errors": ("shared_errors", "measure_shared_errors", "print_shared_errors"),
    "speed": ("search_speed", "judge_speed", "print_speed"),
    "recipes": ("recipe_table", "compare_recipes", "print_recipes"),
    "end-to-end": ("end_to_end", "judge_end_to_end", "print_end_to_end"),
}


def _run_alone(name: str, arguments: argparse.Namespace) -> None:
    module, measure, show = _ALONE[name]
    if arguments.markdown and name == "recipes":
        print(_find(module, "render_markdown")(_find(module, measure)()))
    elif arguments.json:
        _print_json([asdict(each) for each in _find(module, measure)()])
    else:
        _find(module, show)()


def _run(names: Sequence[str], arguments: argparse.Namespace) -> None:
    steps, jobs, left_out = _measure(names, arguments.labels)
    if arguments.details:
        print(_find("table", "render_details")(steps, jobs))
        return
    results = _find("summary", "summarize")(steps, jobs)
    picks = _find("choices", "judge_choices")(steps) if arguments.labels or "pick" in names else []
    scaling = _find("scaling", "judge_scaling")(steps)
    if arguments.json:
        record = {"errors": results, "picks": picks, "scaling": scaling}
        _print_json({name: [asdict(each) for each in rows] for name, rows in record.items()} | {"left_out": left_out})
    else:
        _find("table", "print_results")(results, picks, scaling, left_out)


def _measure(names: Sequence[str], labels: Path | None) -> tuple[list[Any], list[Any], list[str]]:
    """Predicted steps, jobs, and why rows are left out."""
    wanted = [name for name in _STEPS if name in names]
    wanted = wanted or (list(_STEPS) if "pick" in names else [])
    steps: list[Any] = []
    left_out: list[str] = []
    for name in wanted:
        print(f"{name} ...", file=sys.stderr, flush=True)
        steps += _find(_STEPS[name], "compare_steps")()
        reasons = _find(_STEPS[name], "list_left_out")().most_common()
        left_out.append(f"{name}, left out: {', '.join(f'{count} {reason}' for reason, count in reasons)}")
    jobs = list(_find("flagperf_jobs", "compare_jobs")()) if "jobs" in names else []
    if labels is not None:
        own_steps, own_jobs = _find("label_rows", "compare_labels")(labels)
        steps, jobs = [*steps, *own_steps], [*jobs, *own_jobs]
    return steps, jobs, left_out


def _print_json(record: Any) -> None:
    json.dump(record, sys.stdout, indent=2)
    print()


def _find(module: str, function: str) -> Any:
    return getattr(importlib.import_module(f"benchmarks.advise.{module}"), function)
