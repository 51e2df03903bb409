"""The command ``foretell check``."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import APP_FILE, JsonOption, find_app_file
from foretell.cli._output import note, say, show_json
from foretell.core.errors import NotFoundError, SpecError

if TYPE_CHECKING:
    from foretell.apps.app_check import AppCheck

EXAMPLES = "Example: foretell check examples/fcnet/foretell.yaml"


def check(
    file: Annotated[Path | None, typer.Argument(help="The app file; default: foretell.yaml.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Name every mistake in an app file, each with its line; count its runs, and those that cannot be made here."""
    from foretell.apps.app_check import check_app
    from foretell.apps.app_file import load_app

    path = file or find_app_file()
    if path is None:
        raise NotFoundError("file", APP_FILE, hint="Write one with 'foretell init'.")
    try:
        app = load_app(path)
    except SpecError as exc:
        if not as_json:
            raise
        show_json({"ok": False, "file": str(path), "mistakes": exc.mistakes})
        raise typer.Exit(1) from None
    found = check_app(app)
    if as_json:
        show_json({"ok": True, "file": str(path), **asdict(found)})
        return
    excluded = f"; {found.excluded_runs:,} excluded by where" if found.excluded_runs else ""
    runs = f"{found.scaled_down_runs:,} scaled-down and {found.full_scale_runs:,} full-scale runs{excluded}"
    say(f"{path}: app {app.name!r} is fine; {runs}.")
    for warning in _list_warnings(found):
        note(f"But {warning}")


def _list_warnings(found: "AppCheck") -> Iterator[str]:
    if found.warning:
        yield found.warning
    for obstacle, runs in found.impossible_here.items():
        yield (
            f"{runs:,} of them cannot be made on this machine ({obstacle.replace('it asks', 'asked', 1)}): 'foretell "
            "generate' will refuse. Ask for less under resources, or make them with --runner slurm."
        )
