"""The command ``foretell explain``."""

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli._common import (
    AppArgument,
    JsonOption,
    LevelOption,
    SetOption,
    StoreOption,
    find_app,
    find_store,
    parse_option,
    parse_settings,
)
from foretell.cli._output import make_folder, note, show, show_json

EXAMPLES = "Examples: foretell explain | foretell explain myapp --set epochs=100 --cores 48 --plot drivers.png"


def explain(
    app: AppArgument = None,
    settings: SetOption = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores a node; default: as most runs.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs a node; default: as most runs.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes; default: as most runs.")] = None,
    level: LevelOption = "90%",
    plot: Annotated[Path | None, typer.Option(help="Draw time over its main drivers, as .png or .svg.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what drives a prediction, and where its uncertainty comes from.

    Parameters without --set take a usual value, from the middle of those measured.
    """
    from foretell.core.units import parse_share
    from foretell.runtimes import api
    from foretell.runtimes.render import build_explanation_record, render_explanation

    name = find_app(app)
    asked = {"cores": cores, "gpus": gpus, "nodes": nodes}
    explanation = api.explain(
        name,
        parse_settings(settings),
        store=find_store(store, name),
        resources={resource: count for resource, count in asked.items() if count is not None},
        level=parse_option("--level", parse_share, level),
    )
    if plot is not None:
        from foretell.render.figures import save_figure
        from foretell.runtimes.plots import draw_explanation

        make_folder(plot.parent)
        save_figure(draw_explanation(explanation), plot)
    if as_json:
        show_json({**build_explanation_record(explanation), "plot": None if plot is None else str(plot)})
        return
    show([render_explanation(explanation)])
    if plot is not None:
        note(f"Plot: {plot}")
