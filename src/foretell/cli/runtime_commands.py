"""The commands ``foretell build``, ``predict`` and ``explain``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli._click import command
from foretell.cli._options import (
    PATH,
    app_argument,
    build_resources,
    json_option,
    level_option,
    parse_option,
    parse_optional,
    parse_settings,
    resource_options,
    retry_cost_option,
    risk_option,
    set_option,
    store_option,
)
from foretell.cli._output import (
    can_plot,
    check_plot,
    check_plotting,
    compute_with_one_thread,
    make_folder,
    note,
    open_console,
    show,
    show_json,
    write_plot,
)
from foretell.cli._places import find_app, find_store, find_work_folder
from foretell.core.errors import Mistake, SpecError

if TYPE_CHECKING:
    from foretell.core.model_card import ModelCard
    from foretell.core.table_files import Table


@command(
    examples=["foretell build", "foretell build myapp --policy wtm --plots plots/", "foretell build newapp --transfer"]
)
@app_argument
@click.option("--policy", default="mape", help="How the best model is chosen: by mape, mae, wtm or cost.")
@click.option(
    "--candidates", default="default", help="The models to compare: default, or the baselines harp or harp-pca."
)
@click.option("--seed", type=int, default=0, help="Seed of the splits; the same data and seed give the same model.")
@click.option("--transfer", is_flag=True, help="Transfer from similar apps in the store, if it helps.")
@click.option("--transfer-from", multiple=True, metavar="APP", help="Transfer from this app, if it helps; repeatable.")
@click.option("--plots", type=PATH, help="The folder for plots; default: .foretell/plots.")
@click.option("--rows", type=click.IntRange(min=1), default=10, help="Lines of the leaderboard to show.")
@store_option
@json_option
def build(
    app: str | None,
    policy: str,
    candidates: str,
    seed: int,
    transfer: bool,
    transfer_from: tuple[str, ...],
    plots: Path | None,
    rows: int,
    store: str | None,
    as_json: bool,
) -> None:
    """Fit and compare models on the stored runs, and store the best."""
    from foretell.core.render.tables import build_line
    from foretell.runtimes import api
    from foretell.runtimes.render import build_card_record, render_model_card

    if plots is not None:
        check_plotting()
    name = find_app(app)
    console = open_console(stderr=True)
    with console.status("Learning…") as status:
        card = api.build(
            name,
            store=find_store(store, name),
            policy=policy,
            candidates=candidates,
            seed=seed,
            transfer=transfer_from or transfer,
            on_progress=lambda step: status.update(build_line(f"Judging {step}")),
        )
    written = _write_plots(card, plots or _make_plots_folder(name), is_named=plots is not None) if can_plot() else []
    if as_json:
        show_json({**build_card_record(card), "plots": [str(path) for path in written]})
        return
    show([render_model_card(card, rows=rows)])
    listed = ", ".join(str(path) for path in written if path.suffix == ".png")
    note(f"Plots: {listed}" if written else "Plots need: pip install 'foretell[plots]'")


def _make_plots_folder(name: str) -> Path:
    from foretell.core.private_files import make_kept_folder

    base = Path(name).parent if name.endswith((".yaml", ".yml")) else Path.cwd()
    return make_kept_folder(find_work_folder(base), "plots")


def _write_plots(card: "ModelCard", folder: Path, *, is_named: bool) -> list[Path]:
    """Plots in a folder that the user named, or in Foretell's own, where links are not followed."""
    from foretell.core.private_files import keep_file
    from foretell.core.render.figures import render_figure, save_figure
    from foretell.runtimes.plots import draw_predicted_measured

    if is_named:
        make_folder(folder)
    written = []
    for quantity, judgement in card.judgements.items():
        figure = draw_predicted_measured(judgement, title=f"{card.app}: {quantity}")
        for suffix in (".png", ".svg"):
            path = folder / f"{card.app}-{quantity}{suffix}".replace("/", "_")  # names may come from a shared store
            if is_named:
                save_figure(figure, path)
            else:
                keep_file(path, render_figure(figure, suffix))
            written.append(path)
    return written


@command(
    examples=[
        "foretell predict --set epochs=100 --set batch_size=64",
        "foretell predict myapp --from configs.csv --json",
    ]
)
@app_argument
@set_option
@click.option("--from", "source", type=PATH, help="A CSV or Parquet file with one configuration per row.")
@resource_options
@level_option
@risk_option
@retry_cost_option
@store_option
@json_option
def predict(
    app: str | None,
    settings: tuple[str, ...],
    source: Path | None,
    cores: int | None,
    gpus: int | None,
    nodes: int | None,
    level: str,
    risk: str | None,
    retry_cost: float | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Predict the time and memory of a configuration, without running it."""
    compute_with_one_thread()
    from foretell.core.units import parse_share
    from foretell.runtimes import api as api_learning
    from foretell.runtimes.render import build_prediction_record, render_predictions

    if source is not None and settings:
        mistake = Mistake(place="--set", found="together with --from", expected="one of the two")
        raise SpecError("options", [mistake])
    name = find_app(app)
    configurations: Table | dict[str, str]
    configurations = _read_table(source) if source is not None else parse_settings(settings)
    predictions = api_learning.predict(
        name,
        configurations,
        store=find_store(store, name),
        resources=build_resources(cores, gpus, nodes),
        level=parse_option("--level", parse_share, level),
        risk=parse_optional("--risk", parse_share, risk),
        retry_cost=retry_cost,
    )
    if as_json:
        show_json([build_prediction_record(prediction) for prediction in predictions])
        return
    show([render_predictions(predictions)])


def _read_table(path: Path) -> "Table":
    from foretell.core.table_files import read_table  # a single configuration does not need it

    return read_table(path)


@command(examples=["foretell explain", "foretell explain myapp --set epochs=100 --cores 48 --plot drivers.png"])
@app_argument
@set_option
@resource_options
@level_option
@click.option("--plot", type=PATH, help="Plot the time over its main drivers, as .png or .svg.")
@store_option
@json_option
def explain(
    app: str | None,
    settings: tuple[str, ...],
    cores: int | None,
    gpus: int | None,
    nodes: int | None,
    level: str,
    plot: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Explain what a prediction depends on, and where its uncertainty comes from.

    Parameters without --set have a typical value, from the middle of the measured ones.
    """
    compute_with_one_thread()
    from foretell.core.units import parse_share
    from foretell.runtimes import api
    from foretell.runtimes.render import build_explanation_record, render_explanation

    check_plot(plot)
    name = find_app(app)
    explanation = api.explain(
        name,
        parse_settings(settings),
        store=find_store(store, name),
        resources=build_resources(cores, gpus, nodes),
        level=parse_option("--level", parse_share, level),
    )
    if plot is not None:
        from foretell.runtimes.plots import draw_explanation

        write_plot(draw_explanation(explanation), plot)
    if as_json:
        show_json({**build_explanation_record(explanation), "plot": None if plot is None else str(plot)})
        return
    show([render_explanation(explanation)])
    if plot is not None:
        note(f"Plot: {plot}")
