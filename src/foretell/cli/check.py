"""The command ``foretell check``."""

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import APP_FILE, JsonOption, find_app_file, note, show_json
from foretell.errors import NotFoundError, SpecError

EXAMPLES = "Example: foretell check examples/fcnet/foretell.yaml"


def check(
    file: Annotated[Path | None, typer.Argument(help="The app file; default: foretell.yaml.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Name every mistake in an app file, each with its line."""
    from foretell.apps.command import find_program_problem
    from foretell.apps.spec import load_app
    from foretell.apps.sweep import build_sweep

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
    sweep = build_sweep(app)
    small = sum(spec.scale == "SD" for spec in sweep)
    problem = find_program_problem(app)
    if as_json:
        counts = {"scaled_down_runs": small, "full_scale_runs": len(sweep) - small}
        show_json({"ok": True, "file": str(path), "app": app.name, **counts, "warning": problem})
        return
    typer.echo(f"{path}: app {app.name!r} is fine; {small} scaled-down and {len(sweep) - small} full-scale runs.")
    if problem:
        note(f"But {problem}")
