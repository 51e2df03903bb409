"""``python -m benchmarks house``: the size of the package, its imports, and what the five flows load of it."""

import argparse
import tomllib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.goals import Goal, build_goal_table, print_json
from benchmarks.house.duplicates import SHORTEST, find_duplicate_runs
from benchmarks.house.flows import find_entry, measure_flows, unite
from benchmarks.house.names import find_cycles, find_entries, find_equal_names
from benchmarks.house.sources import Source, read_sources

ROOT = Path(__file__).parents[2]
LONGEST_FILE = 450
MOST_PACKAGES = 7
LARGEST = 10

_FOOTNOTE = f"""\
Logical lines: ends of statements (NEWLINE tokens of tokenize), docstrings not counted.
Code lines: lines that are not blank, no comment alone and no docstring.
Equal names: files of one name in several packages, but for __init__, __main__, _base, api, model, render, plots.
Cycles: among modules and among first-level packages; imports inside functions count, for type checkers alone not.
Duplicate runs: pairs of places with {SHORTEST} or more equal lines of code in a row, imports not compared.
Packages: those right below foretell of which a command loaded a module. A flow's are those of all its commands."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-flows", action="store_true", help="leave out the flows, which take half a minute")
    parser.add_argument("--why", metavar="PACKAGE", help="instead, the imports by which each flow loads this package")


def run_command(arguments: argparse.Namespace) -> None:
    """Measure this checkout's package and print it."""
    if arguments.why:
        _show_why(ROOT, "foretell", arguments.why, as_json=arguments.json)
        return
    record = measure_house(ROOT, "foretell")
    if not arguments.no_flows:
        record["flows"] = _measure_flows(ROOT, "foretell")
    goals = list_goals(record)
    if arguments.json:
        print_json(record, goals)
    else:
        print_house(record, goals)


def measure_house(root: Path, name: str) -> dict[str, Any]:
    """What the text of a checkout's package says, without running it."""
    package = root / "src" / name
    sources = read_sources(package)
    return {
        "package": name,
        "files": len(sources),
        "logical_lines": sum(source.logical_lines for source in sources),
        "code_lines": sum(len(source.code_lines) for source in sources),
        "physical_lines": sum(source.physical_lines for source in sources),
        "equal_names": find_equal_names(sources),
        "cycles": find_cycles(package),
        "exhaustive_contracts": _has_exhaustive_contract(root, name),
        "long_files": [_describe_file(source) for source in _largest(sources) if source.physical_lines > LONGEST_FILE],
        "largest_files": [_describe_file(source) for source in _largest(sources)[:LARGEST]],
        "largest_functions": _largest_functions(sources),
        "duplicate_runs": [asdict(run) for run in find_duplicate_runs(sources)],
    }


def list_goals(record: dict[str, Any]) -> list[Goal]:
    """The figures that have a goal."""
    figures = [
        Goal(name="files", value=record["files"], most=230),
        Goal(name="logical lines", value=record["logical_lines"], most=28_000),
        Goal(name="code lines", value=record["code_lines"], most=28_000),
        Goal(name="equal names", value=len(record["equal_names"]), most=0),
        Goal(name=f"files over {LONGEST_FILE} lines", value=len(record["long_files"]), most=0),
        Goal(name="import cycles", value=len(record["cycles"]), most=0),
        Goal(name="packages without an exhaustive contract", value=int(not record["exhaustive_contracts"]), most=0),
    ]
    flows = [
        Goal(name=f"packages: {flow}", value=len(figures["packages"]), most=MOST_PACKAGES)
        for flow, figures in record.get("flows", {}).items()
    ]
    return figures + flows


def print_house(record: dict[str, Any], goals: Iterable[Goal]) -> None:
    """Tables for people, 100 columns wide."""
    console = Console(width=100)
    console.print(build_goal_table(goals, title=f"house: package {record['package']}"))
    console.print(f"{record['physical_lines']:,} physical lines, {len(record['duplicate_runs'])} duplicate runs.")
    for flow, figures in record.get("flows", {}).items():
        console.print(_build_flow(flow, figures))
    functions = [(entry["name"], entry["place"], entry["code_lines"]) for entry in record["largest_functions"]]
    files = [(entry["path"], entry["logical_lines"], entry["physical_lines"]) for entry in record["largest_files"]]
    runs = [(entry["first"], entry["second"], entry["lines"]) for entry in record["duplicate_runs"]]
    names = [(name, "\n".join(places)) for name, places in record["equal_names"].items()]
    cycles = [(" ↔ ".join(names),) for names in record["cycles"]]
    for title, heads, rows in (
        ("Largest functions", ("function", "where", "code lines"), functions),
        ("Largest files", ("file", "logical lines", "physical lines"), files),
        ("Equal names", ("name", "where"), names),
        ("Import cycles", ("modules",), cycles),
        ("Duplicate runs", ("first", "second", "lines"), runs),
    ):
        if rows:
            console.print(_build_table(title, heads, rows))
    console.print(_FOOTNOTE, style="dim", soft_wrap=True, highlight=False)


def _measure_flows(root: Path, name: str) -> dict[str, Any]:
    package = root / "src" / name
    measured = measure_flows(package, entry=find_entry(root, name))
    described = {}
    for flow, commands in measured.items():
        each = {command: (len(one.modules), one.packages(package)) for command, one in commands.items()}
        both = unite(commands.values())
        described[flow] = {
            "modules": len(both.modules),
            "packages": both.packages(package),
            "commands": {command: {"modules": count, "packages": names} for command, (count, names) in each.items()},
        }
    return described


def _show_why(root: Path, name: str, wanted: str, *, as_json: bool) -> None:
    package = root / "src" / name
    measured = measure_flows(package, entry=find_entry(root, name))
    entries = {
        command: find_entries(package, wanted, one.modules)
        for commands in measured.values()
        for command, one in commands.items()
    }
    if as_json:
        print_json(entries)
        return
    rows = [(command, *entry) for command, found in entries.items() for entry in found]
    Console(width=100).print(_build_table(f"Imports of {name}.{wanted}", ("command", "from", "imported"), rows))


def _has_exhaustive_contract(root: Path, name: str) -> bool:
    tools = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {})
    contracts = tools.get("importlinter", {}).get("contracts", [])
    return any(one.get("exhaustive") and name in one.get("containers", ()) for one in contracts)


def _largest(sources: Iterable[Source]) -> list[Source]:
    return sorted(sources, key=lambda source: (-source.physical_lines, source.path))


def _describe_file(source: Source) -> dict[str, Any]:
    lines = {"logical_lines": source.logical_lines, "physical_lines": source.physical_lines}
    return {"path": str(source.path), **lines}


def _largest_functions(sources: Iterable[Source]) -> list[dict[str, Any]]:
    functions = [function for source in sources for function in source.functions()]
    functions.sort(key=lambda function: (-function.code_lines, function.place))
    return [asdict(function) for function in functions[:LARGEST]]


def _build_flow(flow: str, figures: dict[str, Any]) -> Table:
    entries = {**figures["commands"], "all": figures} if len(figures["commands"]) > 1 else figures["commands"]
    rows = [(name, one["modules"], len(one["packages"]), ", ".join(one["packages"])) for name, one in entries.items()]
    return _build_table(f"Loaded by {flow}", ("command", "modules", "packages", "which"), rows)


def _build_table(title: str, heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    numbers = {"modules", "packages", "lines", "code lines", "logical lines", "physical lines"}
    for head in heads:
        table.add_column(head, justify="right" if head in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return table
