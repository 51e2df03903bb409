"""The command ``foretell predict``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import (
    AppArgument,
    JsonOption,
    LevelOption,
    RiskOption,
    SetOption,
    StoreOption,
    find_app,
    find_store,
    note,
    parse_option,
    parse_optional,
    parse_settings,
    show,
    show_json,
)
from foretell.errors import Mistake, SpecError

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES = (
    "Examples: foretell predict --set epochs=100 --set batch_size=64 | foretell predict myapp --from configs.csv --json"
)


def predict(
    app: AppArgument = None,
    settings: SetOption = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A CSV or Parquet file with a configuration a row."),
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores a node; default: as most runs.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs a node; default: as most runs.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes; default: as most runs.")] = None,
    level: LevelOption = "90%",
    risk: RiskOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how long a configuration would take and how much memory, without running anything."""
    from foretell import api
    from foretell.entities.units import parse_share
    from foretell.reports.records import build_prediction_record
    from foretell.reports.text_offers import render_predictions

    if source is not None and settings:
        mistake = Mistake(place="--set", found="together with --from", expected="one of the two")
        raise SpecError("options", [mistake])
    name = find_app(app)
    configurations: pd.DataFrame | dict[str, str]
    configurations = api.read_table(source) if source is not None else parse_settings(settings)
    asked = {"cores": cores, "gpus": gpus, "nodes": nodes}
    answer = api.ask(
        name,
        configurations,
        store=find_store(store, name),
        resources={name: count for name, count in asked.items() if count is not None},
        level=parse_option("--level", parse_share, level),
        risk=parse_optional("--risk", parse_share, risk),
    )
    if as_json:
        show_json([build_prediction_record(prediction) for prediction in answer.predictions])
        return
    show([render_predictions(answer.predictions)])
    if answer.new_runs > 0:
        came = "1 run has come" if answer.new_runs == 1 else f"{answer.new_runs} runs have come"
        note(f"{came} in since the model was built; 'foretell build' learns from it.")
