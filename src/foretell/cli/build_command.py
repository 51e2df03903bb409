"""The command ``foretell build``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli._common import AppArgument, JsonOption, StoreOption, find_app, find_store, find_work_folder
from foretell.cli._output import make_folder, note, open_console, show, show_json

if TYPE_CHECKING:
    from foretell.core.model_card import ModelCard

EXAMPLES = (
    "Examples: foretell build | foretell build myapp --policy wtm --plots plots/ | foretell build newapp --borrow"
)


def build(
    app: AppArgument = None,
    policy: Annotated[str, typer.Option(help="What the winner is chosen by: mape, mae, wtm or cost.")] = "mape",
    candidates: Annotated[
        str, typer.Option(help="Which models stand: default, or harp or harp-pca as a baseline.")
    ] = "default",
    seed: Annotated[int, typer.Option(help="For the splits; the same data and seed give the same model.")] = 0,
    borrow: Annotated[
        bool, typer.Option("--borrow", help="Borrow from similar apps in the store, if it helps.")
    ] = False,
    borrow_from: Annotated[
        list[str] | None, typer.Option(metavar="APP", help="Borrow from this app, if it helps; repeatable.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for the plots; default: .foretell/plots.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Lines of the leaderboard to show.")] = 10,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit and judge models on the stored runs; keep the best."""
    from foretell.render.tables import build_line
    from foretell.runtimes import api
    from foretell.runtimes.render import build_card_record, render_model_card

    name = find_app(app)
    console = open_console(stderr=True)
    with console.status("Learning…") as status:
        card = api.build(
            name,
            store=find_store(store, name),
            policy=policy,
            candidates=candidates,
            seed=seed,
            borrow=borrow_from or borrow,
            on_progress=lambda step: status.update(build_line(f"Judging {step}")),
        )
    written = _write_plots(card, plots or _make_plots_folder(name), is_named=plots is not None)
    if as_json:
        show_json({**build_card_record(card), "plots": [str(path) for path in written]})
        return
    show([render_model_card(card, rows=rows)])
    note(f"Plots: {', '.join(str(path) for path in written if path.suffix == '.png')}")


def _make_plots_folder(name: str) -> Path:
    from foretell.apps.workspace import make_kept_folder

    base = Path(name).parent if name.endswith((".yaml", ".yml")) else Path.cwd()
    return make_kept_folder(find_work_folder(base), "plots")


def _write_plots(card: "ModelCard", folder: Path, *, is_named: bool) -> list[Path]:
    """Plots in a folder that the user named, or in the one that is Foretell's own: there, links are not followed."""
    from foretell.apps.workspace import keep_file
    from foretell.render.figures import render_figure, save_figure
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
