"""The command ``foretell predict``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import (
    AppArgument,
    JsonOption,
    LevelOption,
    RetryCostOption,
    RiskOption,
    SetOption,
    StoreOption,
    find_app,
    find_store,
    parse_option,
    parse_optional,
    parse_settings,
)
from foretell.cli._output import show, show_json
from foretell.core.errors import Mistake, SpecError

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
    retry_cost: RetryCostOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how long a configuration would take and how much memory, without running anything."""
    from foretell.apps import table_files as apps_tables
    from foretell.core.units import parse_share
    from foretell.runtimes import api as api_learning
    from foretell.runtimes.render import build_prediction_record, render_predictions

    if source is not None and settings:
        mistake = Mistake(place="--set", found="together with --from", expected="one of the two")
        raise SpecError("options", [mistake])
    name = find_app(app)
    configurations: pd.DataFrame | dict[str, str]
    configurations = apps_tables.read_table(source) if source is not None else parse_settings(settings)
    asked = {"cores": cores, "gpus": gpus, "nodes": nodes}
    predictions = api_learning.predict(
        name,
        configurations,
        store=find_store(store, name),
        resources={name: count for name, count in asked.items() if count is not None},
        level=parse_option("--level", parse_share, level),
        risk=parse_optional("--risk", parse_share, risk),
        retry_cost=retry_cost,
    )
    if as_json:
        show_json([build_prediction_record(prediction) for prediction in predictions])
        return
    show([render_predictions(predictions)])
