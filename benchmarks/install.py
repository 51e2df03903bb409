"""``python -m benchmarks install``: packages and size that ``pip install`` of the wheel adds to an empty venv."""

import argparse
import importlib.metadata
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.goals import Goal, build_goal_table, build_table, print_json

ROOT = Path(__file__).parents[1]
LARGEST = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkout", type=Path, default=ROOT, help="what to install; default: this checkout")
    parser.add_argument("--before", metavar="REV", help="a revision to compare with, such as a751fe9")


def run_command(arguments: argparse.Namespace) -> None:
    """Install the wheels, each into a venv of its own, and print what came with them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record = measure_installs(arguments.checkout, folder, before=arguments.before)
    goals = list_goals(record)
    if arguments.json:
        print_json(record, goals)
        return
    console = Console(width=100)
    console.print(_build_sizes(record))
    if goals:
        console.print(build_goal_table(goals))


def measure_installs(checkout: Path, folder: Path, *, before: str | None) -> dict[str, Any]:
    """What the wheel of a checkout brings and, if asked for, that of an earlier revision."""
    constraints = _read_constraints(checkout)
    record: dict[str, Any] = {}
    if before:
        with check_out(checkout, before, folder / "checkout") as earlier:
            older = _read_constraints(earlier)
            record["before"] = _measure_install(earlier, folder / "before", constraints={**older, **constraints})
    record["after"] = _measure_install(checkout, folder / "after", constraints=constraints)
    return record


def list_goals(record: Mapping[str, Any]) -> list[Goal]:
    """The size in per cent of what it was, if that was measured."""
    if "before" not in record:
        return []
    ratio = 100 * record["after"]["size_bytes"] / record["before"]["size_bytes"]
    return [Goal(name="size in % of before", value=ratio, most=60)]


@contextmanager
def check_out(repository: Path, revision: str, folder: Path) -> Iterator[Path]:
    """A worktree of a revision, for as long as it is needed."""
    git = ["git", "-C", str(repository), "worktree"]
    _run([*git, "add", "--detach", str(folder), revision])
    try:
        yield folder
    finally:
        _run([*git, "remove", "--force", str(folder)])


def measure_packages(site_packages: Path) -> dict[str, int]:
    """Bytes of each installed distribution, bytecode included, the largest first."""
    sizes = {
        distribution.name: sum(_size_files(distribution, site_packages))
        for distribution in importlib.metadata.distributions(path=[str(site_packages)])
    }
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _measure_install(checkout: Path, folder: Path, *, constraints: Mapping[str, str]) -> dict[str, Any]:
    folder.mkdir()
    pins = folder / "constraints.txt"
    pins.write_text("".join(f"{line}\n" for line in constraints.values()))
    pip = _make_pip(folder / "pip")
    _run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(checkout)])
    (wheel,) = folder.glob("*.whl")
    empty = folder / "empty"
    venv.create(empty, symlinks=True, with_pip=False)
    target = ["--python", str(empty / "bin" / "python")]
    _run([*pip, *target, "install", "--quiet", "--constraint", str(pins), str(wheel)])
    (site_packages,) = empty.glob("lib/python*/site-packages")
    packages = measure_packages(site_packages)
    size = sum(file.stat().st_size for file in site_packages.rglob("*") if file.is_file())
    return {"packages": len(packages), "size_bytes": size, "wheel_bytes": wheel.stat().st_size, "each_bytes": packages}


def _make_pip(folder: Path) -> list[str]:
    venv.create(folder, symlinks=True, with_pip=True)
    return [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]


def _read_constraints(checkout: Path) -> dict[str, str]:
    """Lines of constraints.txt by the package that they are of."""
    lines = (checkout / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", re.split(r"[=<>~!;\[ ]", pin)[0]).lower(): pin for pin in pins}


def _size_files(distribution: importlib.metadata.Distribution, site_packages: Path) -> Iterable[int]:
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if path.is_file() and path.is_relative_to(site_packages):
            yield path.stat().st_size


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr[-3000:]}")


def _build_sizes(record: Mapping[str, Any]) -> Table:
    table = build_table("install: wheel in an empty venv", "", *record)
    table.add_row("packages", *(str(one["packages"]) for one in record.values()))
    table.add_row("site-packages, MB", *(_megabytes(one["size_bytes"]) for one in record.values()))
    table.add_row(
        "the wheel itself, MB", *(_megabytes(one["wheel_bytes"]) for one in record.values()), end_section=True
    )
    largest = {name: None for one in record.values() for name in list(one["each_bytes"])[:LARGEST]}
    for name in largest:
        table.add_row(name, *(_megabytes(one["each_bytes"].get(name)) for one in record.values()))
    return table


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f}"
