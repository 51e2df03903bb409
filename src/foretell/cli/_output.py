"""What commands print and write."""

import hashlib
import os
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretell.core.errors import MissingExtraError, OutputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, RenderableType

    from foretell.campaigns.campaign_plan import Progress


def open_console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=False, highlight=False)


def show(renderables: "Iterable[RenderableType]") -> None:
    """Print for people."""
    console = open_console()
    for renderable in renderables:
        console.print(renderable)


def show_json(record: Any) -> None:
    """Print for programs."""
    from foretell.core.serialization import render_json

    click.echo(render_json(record))


def note(text: str) -> None:
    """Print a note to stderr."""
    open_console(stderr=True).print(clean_text(text), markup=False, style="dim")


def say(text: str) -> None:
    """Print a result that is a sentence."""
    click.echo(clean_text(text))


def clean_text(text: object) -> str:
    """Text whose names and values may come from anywhere: characters that control the terminal are escaped."""
    from foretell.core.render.phrases import clean_line

    return "\n".join(clean_line(line) for line in str(text).split("\n"))


def write_text(path: Path, text: str) -> None:
    """Write a file.

    Raises:
        OutputError: if it cannot be written.
    """
    make_folder(path.parent)
    try:
        path.write_text(text, "utf-8")
    except OSError as exc:
        raise OutputError(f"{path}: cannot be written ({exc.strerror}); choose another place") from exc


def compute_with_one_thread() -> None:
    """Keep numpy from starting a thread for each core when it is imported: predictions multiply small arrays.

    Only for commands that start no program of the user's, which would inherit it.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def can_plot() -> bool:
    """Whether the library for plots is installed."""
    return find_spec("matplotlib") is not None


def check_plotting(what: str = "a plot") -> None:
    """Refuse early, before there is anything to draw.

    Raises:
        MissingExtraError: if the library for plots is not installed.
    """
    if not can_plot() or find_spec("jinja2") is None:
        raise MissingExtraError(f"{what} needs: pip install 'foretell[plots]'")


def check_plot(path: Path | None) -> None:
    """Whether a plot can be written under that name: checked before there is anything to draw.

    Raises:
        OutputError: if its name ends otherwise, or is that of a folder.
        MissingExtraError: if the library for plots is not installed.
    """
    if path is None:
        return
    check_plotting()
    if path.suffix.lower() not in (".png", ".svg"):
        raise OutputError(f"{str(path)!r} is no plot we can write; its name must end in .png or .svg")
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder; name a file for the plot, as in {path / 'plot.png'}")


def write_plot(figure: "Figure", path: Path) -> None:
    """Write a figure, and the folder it is in.

    Raises:
        OutputError: if it cannot be written.
    """
    from foretell.core.render.figures import save_figure

    make_folder(path.parent)
    save_figure(figure, path)


def make_folder(path: Path) -> None:
    """Make a folder and those above it.

    Raises:
        OutputError: if it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise OutputError(f"{path}: this folder cannot be made ({exc.strerror}); choose another place") from exc


class Display:
    """A live line at a terminal; elsewhere a line for each run that ended."""

    def __init__(self) -> None:
        from rich.live import Live

        self._noted: set[str] = set()
        self._console = open_console(stderr=True)
        self._live = (
            Live(console=self._console, refresh_per_second=4, transient=True) if self._console.is_terminal else None
        )

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, progress: "Progress") -> None:
        from foretell.campaigns.render import render_outcome, render_progress

        if self._live:
            self._live.update(render_progress(progress))
        if progress.last is not None and (self._live is None or progress.last.state != "completed"):
            self._console.print(render_outcome(progress.last))
        if progress.note and _kind(progress.note) not in self._noted:
            self._console.print(f"Note: {clean_text(progress.note)}", style="yellow", markup=False)
            self._noted.add(_kind(progress.note))


def _kind(note: str) -> str:
    """A note without its numbers: each kind is printed once."""
    return re.sub(r"\d+", "", note)


_MARK = re.compile(r"Written by foretell, checksum ([0-9a-f]{12})\b")
_COMMENTS = {".html": "<!-- {} -->"}
_MARKED_LINES = 3  # the mark is on one of the first lines; more need not be searched


def write_generated(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file with its mark after the first line (``#!/bin/bash``, ``<!doctype html>``).

    Raises:
        OutputError: if a file is there that Foretell did not write or that was edited since, or it cannot be written.
    """
    if not force and not _is_replaceable(path):
        raise OutputError(
            f"{path} was not written: the file that is there is not Foretell's, or was edited since Foretell wrote it; "
            "choose another name with --output, or replace it with --force"
        )
    first, newline, rest = text.partition("\n")
    mark = _COMMENTS.get(path.suffix, "# {}").format(f"Written by foretell, checksum {_checksum(text)}")
    write_text(path, f"{first}{newline}{mark}\n{rest}")


def _is_replaceable(path: Path) -> bool:
    """Whether nothing of the user's is lost: no file, an empty one, a device, or one of ours that nobody edited."""
    if not path.is_file():
        return True
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
    except (OSError, ValueError):  # not readable, or not text: not ours
        return False
    marks = [(number, found[1]) for number, line in enumerate(lines[:_MARKED_LINES]) if (found := _MARK.search(line))]
    if not marks:
        return not lines
    number, checksum = marks[0]
    return _checksum("".join(lines[:number] + lines[number + 1 :])) == checksum


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
