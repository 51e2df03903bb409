"""``python -m benchmarks startup``: time and memory of commands with 1,000 stored runs."""

import argparse
import csv
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.goals import Goal, build_goal_table, build_table, print_json
from benchmarks.house.flows import find_entry
from benchmarks.startup.import_times import parse_import_times, sum_by_package

ROOT = Path(__file__).parents[2]
RUNS = 1_000
MOST_ROWS = 25
HELP, BASELINE = "foretell --help", "optuna --help"

_APP_FILE = """\
name: made-up
command: [simulate, "{steps}", "{size}", "{method}"]
parameters:
  steps: {type: integer, sd: [100, 1000], fs: [1000, 10000]}
  size: {type: integer, values: [64, 128, 256, 512]}
  method: {values: [explicit, implicit]}
resources: {cores: [1, 2, 4, 8, 16]}
"""
_SCRIPT = """\
import sys
from {module} import {function}
if __name__ == "__main__":
    sys.argv[0] = {program!r}
    sys.exit({function}())
"""
_COLUMNS = ("shortest, ms", "median", "longest", "CPU, ms", "of help", "by CPU", "memory, MB")
_CONFIGURATION = ("--set", "steps=5000", "--set", "size=300", "--set", "method=implicit")
_IMPORT = ("--app", "made-up", "--elapsed", "elapsed_s", "--memory", "memory_bytes", "--scale", "scale")
_PREPARE = {
    "runs import": ("runs", "import", "runs.csv", *_IMPORT),
    "build": ("build", "made-up", "--json"),
}
COMMANDS: Mapping[str, Sequence[str]] = {
    HELP: ("foretell", "--help"),
    BASELINE: ("optuna", "--help"),
    "predict": ("foretell", "predict", "made-up", *_CONFIGURATION),
    "recommend": ("foretell", "recommend", "made-up", *_CONFIGURATION, "--site", "osc", "--output", "job.sbatch"),
    "runs list": ("foretell", "runs", "list", "made-up"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=9, help="how often each command runs, in turns; default: 9")
    parser.add_argument(
        "--imports",
        choices=list(COMMANDS),
        metavar="COMMAND",
        help=f"instead, the {MOST_ROWS} imports that cost a command most: {', '.join(map(repr, COMMANDS))}",
    )


def run_command(arguments: argparse.Namespace) -> None:
    """Prepare a store, measure, and print."""
    with prepare_folder() as folder:
        if arguments.imports:
            _show_imports(arguments.imports, folder, as_json=arguments.json)
            return
        figures = measure_commands(folder, repeats=arguments.repeats)
    goals = list_goals(figures)
    if arguments.json:
        print_json({"repeats": arguments.repeats, "commands": figures}, goals)
    else:
        print_figures(figures, goals, repeats=arguments.repeats)


@contextmanager
def prepare_folder(runs: int = RUNS) -> Iterator[Path]:
    """A folder with both programs, an app, a store with its runs and a model fitted to them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_program(folder, "foretell", find_entry(ROOT, "foretell"))
        _write_program(folder, "optuna", _find_installed_entry("optuna"))
        (folder / "foretell.yaml").write_text(_APP_FILE)
        _write_runs(folder / "runs.csv", runs)
        for words in _PREPARE.values():
            _call(["foretell", *words], folder)
        yield folder


def measure_commands(
    folder: Path, *, repeats: int, commands: Mapping[str, Sequence[str]] = COMMANDS
) -> dict[str, dict[str, float]]:
    """Median seconds and largest peak memory of each command, run in turns.

    CPU time is also kept: where others use the machine, its ratios vary less.
    """
    task = {
        "commands": {name: _full_words(words, folder) for name, words in commands.items()},
        "repeats": repeats,
        "directory": str(folder),
        "environment": _build_environment(folder),
    }
    launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py"))]
    done = subprocess.run(launcher, input=json.dumps(task), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return {name: _summarize(measured) for name, measured in json.loads(done.stdout).items()}


def list_goals(figures: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    """The figures that have a goal."""
    seconds = {name: figure["median_s"] for name, figure in figures.items()}
    goals = [Goal(name=f"{HELP} in multiples of {BASELINE}", value=seconds[HELP] / seconds[BASELINE], most=0.4)]
    goals += [
        Goal(name=f"{name} in multiples of {HELP}", value=seconds[name] / seconds[HELP], most=3)
        for name in ("predict", "recommend", "runs list")
    ]
    return [
        *goals,
        Goal(name="predict: peak memory, MB", value=figures["predict"]["peak_memory_bytes"] / 1e6, most=120),
    ]


def print_figures(figures: Mapping[str, Mapping[str, float]], goals: Sequence[Goal], *, repeats: int) -> None:
    """Tables for people."""
    console = Console(width=100)
    title = f"startup: {RUNS:,} runs stored; medians of {repeats} runs in turns, after one of each to warm up"
    table = build_table(title, "command", *_COLUMNS)
    for name, figure in figures.items():
        times = [f"{1000 * figure[f'{which}_s']:.0f}" for which in ("shortest", "median", "longest", "cpu")]
        ratios = [f"{figure[which] / figures[HELP][which]:.2f}" for which in ("median_s", "cpu_s")]
        table.add_row(name, *times, *ratios, f"{figure['peak_memory_bytes'] / 1e6:.0f}")
    console.print(table)
    console.print(build_goal_table(goals))


def _show_imports(name: str, folder: Path, *, as_json: bool) -> None:
    interpreter, *words = _full_words(COMMANDS[name], folder)
    environment = _build_environment(folder)
    for _ in range(2):  # the first time writes bytecode
        done = subprocess.run(
            [interpreter, "-X", "importtime", *words], cwd=folder, env=environment, capture_output=True, text=True
        )
    times = parse_import_times(done.stderr)
    packages = sum_by_package(times)
    if as_json:
        modules = [asdict(time) for time in times[:MOST_ROWS]]
        print_json({"command": name, "count": len(times), "modules": modules, "packages": packages})
        return
    console = Console(width=100)
    title = f"Imports of {name}: {len(times):,} modules, {1000 * sum(packages.values()):.0f} ms"
    table = build_table(title, "module", "own, ms", "with what it imports, ms")
    for time in times[:MOST_ROWS]:
        table.add_row(time.name, f"{1000 * time.own_s:.1f}", f"{1000 * time.total_s:.1f}")
    console.print(table)
    table = build_table("By package", "package", "own, ms")
    for package, own_s in list(packages.items())[:MOST_ROWS]:
        table.add_row(package, f"{1000 * own_s:.1f}")
    console.print(table)


def _write_program(folder: Path, program: str, entry: str) -> None:
    """What pip installs for an entry point."""
    module, _, function = entry.partition(":")
    script = folder / "bin" / program
    script.parent.mkdir(exist_ok=True)
    script.write_text(_SCRIPT.format(module=module, function=function, program=program))


def _find_installed_entry(program: str) -> str:
    found = importlib.metadata.entry_points(group="console_scripts", name=program)
    if not found:
        sys.exit(f"{program} is not installed; run: {sys.executable} -m pip install -c constraints.txt -e '.[bench]'")
    return next(iter(found)).value


def _write_runs(path: Path, count: int) -> None:
    from benchmarks.histories import make_runs

    rows = [
        {
            **run.spec.parameters,
            "cores": run.spec.allocation.cores,
            "elapsed_s": run.usage.elapsed_s,
            "memory_bytes": run.usage.peak_memory_bytes,
            "scale": "SD" if number % 3 else "FS",
        }
        for number, run in enumerate(make_runs(count))
        if run.usage
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def _call(words: Sequence[str], folder: Path) -> None:
    command, environment = _full_words(words, folder), _build_environment(folder)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")


def _full_words(words: Sequence[str], folder: Path) -> list[str]:
    program, *rest = words
    return [sys.executable, str(folder / "bin" / program), *rest]


def _build_environment(folder: Path) -> dict[str, str]:
    """The user's, without own settings, and with bytecode kept between runs."""
    left_out = ("FORETELL", "XDG", "SLURM", "SBATCH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}


def _summarize(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    seconds = [one["elapsed_s"] for one in measured]
    return {
        "median_s": statistics.median(seconds),
        "shortest_s": min(seconds),
        "longest_s": max(seconds),
        "cpu_s": statistics.median(one["cpu_s"] for one in measured),
        "peak_memory_bytes": max(one["peak_memory_bytes"] for one in measured),
    }
