"""Progress on long work."""

import re
from typing import TYPE_CHECKING

from foretell.cli._common import clean_text, open_console

if TYPE_CHECKING:
    from foretell.campaigns.campaign_plan import Progress


class Display:
    """A live line at a terminal; elsewhere a line for each run that ended."""

    def __init__(self) -> None:
        from rich.live import Live

        self._told: set[str] = set()
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
        if progress.note and _kind(progress.note) not in self._told:
            self._console.print(f"Note: {clean_text(progress.note)}", style="yellow", markup=False)
            self._told.add(_kind(progress.note))


def _kind(note: str) -> str:
    """What is said, whatever its numbers: once is enough."""
    return re.sub(r"\d+", "", note)
