"""The command ``foretell verify``."""

from typing import Annotated

import typer

from foretell.cli._common import AppArgument, JsonOption, SetOption, StoreOption, find_app, find_store, parse_settings
from foretell.cli._output import open_console, show, show_json

EXAMPLES = "Example: foretell verify --set epochs=40 --set batch_size=64"


def verify(
    app: AppArgument = None,
    settings: SetOption = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores; default: as most runs.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one configuration here, and hold the prediction against what was measured. The run is stored."""
    from foretell.advice import verification as api
    from foretell.advice.render import build_verification_record, render_verification

    name = find_app(app)
    with open_console(stderr=True).status("Running it…"):
        verification = api.verify(name, parse_settings(settings), store=find_store(store, name), cores=cores)
    if as_json:
        show_json(build_verification_record(verification))
    else:
        show([render_verification(verification)])
    if verification.run.state != "completed":
        raise typer.Exit(1)
