"""The commands ``foretell store``."""

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import JsonOption
from foretell.cli._output import note, show_json

app = typer.Typer(help="Make a store for yourself, or for a group.", no_args_is_help=True)

EXAMPLES = "Examples: foretell store create runs.db | foretell store create /project/lab/store.db --group lab"


@app.command(epilog=EXAMPLES)
def create(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The SQLite file to make.", show_default=False)],
    group: Annotated[
        str | None,
        typer.Option(
            help="A Unix group whose members may read and write it; default: nobody but you.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an empty SQLite store: readable and writable for you only, or for a group."""
    from foretell import stores as api

    api.create_store(path, group=group)
    if as_json:
        show_json({"store": str(path.absolute()), "group": group})
        return
    whom = f"group {group}" if group else "you only"
    note(f"Made {path}, for {whom}; use it with: --store {path}, or export FORETELL_STORE={path.absolute()}")
