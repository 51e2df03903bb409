"""Runs in from tables, and out to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from foretell.api.workspace import StoreLike, using_store
from foretell.apps.tables import Columns, read_runs, read_table
from foretell.entities.app import App
from foretell.errors import NotFoundError
from foretell.stores import RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What came of an import. ``skipped`` says why rows were left out, and which."""

    app: str
    read: int
    added: int
    already_there: int
    parameters: tuple[str, ...]
    skipped: Mapping[str, Sequence[int]]


def import_runs(
    source: str | Path | pd.DataFrame, *, app: str, columns: Columns, store: StoreLike = None
) -> ImportResult:
    """Store the runs of a table; the app need not exist before. Importing twice adds nothing.

    Raises:
        ImportDataError: if the table cannot be read, lacks a column, or has no usable row.
    """
    frame = source if isinstance(source, pd.DataFrame) else read_table(Path(source))
    table = read_runs(frame, app=app, columns=columns)
    with using_store(store) as opened:
        _make_known(table.app, opened)
        added = opened.add_runs(table.runs)
    return ImportResult(
        app=app,
        read=len(frame),
        added=added,
        already_there=len(table.runs) - added,
        parameters=table.app.parameter_names(),
        skipped=table.skipped,
    )


def _make_known(app: App, store: RunStore) -> None:
    """An app that was described keeps its description; one known from imports learns of new columns."""
    try:
        known = store.get_app(app.name)
    except NotFoundError:
        store.save_app(app)
        return
    if not known.command and known.shell is None:
        merged = {parameter.name: parameter for parameter in (*known.parameters, *app.parameters)}
        store.save_app(App(name=app.name, parameters=tuple(merged.values())))
