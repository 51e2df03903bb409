"""``python -m benchmarks runs``: what is asked for, who does it, what is printed."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SETS = ("harp", "c3o", "scaleout", "lotaru", "stampede2", "sizey", "mlperf", "sia")
EXAMPLES = """examples:
  python -m benchmarks runs                            all sets, within half an hour
  python -m benchmarks runs harp c3o --seeds 3 --repeats 5
  python -m benchmarks runs stampede2 --full --json
  python -m benchmarks runs --output results --write-docs
  python -m benchmarks runs --train a.csv --test b.csv --target walltime_s --group user
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"which of {', '.join(SETS)}; all unless said")
    parser.add_argument(
        "--repeats", type=_count, default=20, help="random splits where 300 were published (%(default)s)"
    )
    parser.add_argument("--seeds", type=_count, default=10, help="most seeds of other random splits (%(default)s)")
    parser.add_argument("--full", action="store_true", help="every split, size and row that was published")
    parser.add_argument("--jobs", type=_count, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="keep each set's result there; sets not asked for are read back"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/benchmarks.md")
    table = parser.add_argument_group("any table", "learn from one table, judge on another")
    table.add_argument("--train", type=Path, metavar="FILE", help="runs to learn from: CSV, TSV or Parquet")
    table.add_argument("--test", type=Path, metavar="FILE", help="runs to predict, with the same columns")
    table.add_argument("--target", metavar="COLUMN", help="the time in seconds")
    table.add_argument("--memory-target", metavar="COLUMN", help="the memory in bytes")
    table.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="COLUMN",
        help="not a feature; errors are reported for each value",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1")
    return int(text)


def run_command(arguments: argparse.Namespace) -> None:
    """Measure as asked, and print a table or an object.

    Raises:
        SystemExit: if what was asked for cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a process: the cores are busy with other cases
    try:
        record = _run_tables(arguments) if _has_tables(arguments) else _run_sets(arguments)
    except (OSError, ValueError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump(record, sys.stdout, indent=2)
        print()


def _has_tables(arguments: argparse.Namespace) -> bool:
    words = {"--train": arguments.train, "--test": arguments.test, "--target": arguments.target}
    missing = [word for word, value in words.items() if value is None]
    if len(missing) == len(words):
        return False
    if missing:
        raise SystemExit(
            f"error: {' and '.join(missing)} missing: a table to learn from, one to judge on, and their target"
        )
    return True


def _run_tables(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.sets:
        raise ValueError(f"{arguments.sets[0]!r}: name a set, or tables of your own, not both")
    tables = importlib.import_module("benchmarks.runs.tables")
    record: dict[str, Any] = tables.run_tables(
        arguments.train,
        arguments.test,
        target=arguments.target,
        memory=arguments.memory_target,
        groups=arguments.group,
    )
    if not arguments.json:
        importlib.import_module("benchmarks.runs.report").print_tables(record)
    return record


def _run_sets(arguments: argparse.Namespace) -> dict[str, Any]:
    # Late, so that --help does not wait for what computes.
    report, suites = (importlib.import_module(f"benchmarks.runs.{name}") for name in ("report", "suites"))
    cases = importlib.import_module("benchmarks.runs.cases")
    asked = _choose(arguments.sets)
    for name in asked:
        cases.find_folder(suites.SUITES[name].folder)
    plan = cases.Plan(repeats=arguments.repeats, seeds=arguments.seeds, full=arguments.full)
    records = _read_kept(arguments.output, asked)
    for name in asked:
        records[name] = suites.run_suite(suites.SUITES[name], plan, jobs=arguments.jobs)
        _keep(arguments.output, records[name])
    ordered = [records[name] for name in SETS if name in records]
    all_sets = suites.record_all(ordered)
    if arguments.write_docs:
        report.write_page(ordered, all_sets)
    if not arguments.json:
        report.print_sets(ordered, all_sets)
    return {"sets": {record["set"]: record for record in ordered}, "all": all_sets}


def _choose(names: Iterable[str]) -> list[str]:
    asked = list(dict.fromkeys(names)) or list(SETS)
    unknown = [name for name in asked if name not in SETS]
    if unknown:
        raise ValueError(f"no set named {unknown[0]!r}; known sets: {', '.join(SETS)}")
    return asked


def _read_kept(folder: Path | None, asked: Iterable[str]) -> dict[str, Any]:
    """What earlier calls kept of sets that are not asked for now."""
    if folder is None:
        return {}
    others = [name for name in SETS if name not in asked and (folder / f"{name}.json").is_file()]
    return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in others}


def _keep(folder: Path | None, record: dict[str, Any]) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{record['set']}.json").write_text(json.dumps(record, indent=2) + "\n", "utf-8")
