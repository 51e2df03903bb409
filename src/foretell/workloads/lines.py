"""What is measured bit by bit: a file of JSON lines that nothing is lost from, and that one can go on with."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foretell.errors import ImportDataError, OutputError


class LinesFile:
    """A head that names the file's kind, then a line for each thing measured."""

    def __init__(self, path: Path, *, format_: str, maker: str) -> None:
        self.path = path
        self._format = format_
        self._maker = maker

    def open(self, build_head: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The file's head; a new one where there is no file.

        Raises:
            ImportDataError: The file is of another kind.
            OutputError: It cannot be written.
        """
        head = next(self._lines(), None) if self.path.exists() else None
        if head is None:
            head = build_head()
            self.append(head)
        if head.get("format") != self._format:
            raise ImportDataError(f"{self.path}: no file of '{self._maker}'. Name another file.")
        return head

    def split(self) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """The head, and the lines after it."""
        lines = self._lines()
        return next(lines, {}), lines

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line at once; one that was cut short before stays alone.

        Raises:
            OutputError: The file cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell() and not _ends_whole(file):
                    file.write(b"\n")
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as exc:
            raise OutputError(f"{self.path}: cannot be written ({exc.strerror}); name another file") from exc

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise ImportDataError(f"{self.path}: cannot be read ({exc}); name another file") from exc
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # cut short
                continue
            yield record if isinstance(record, dict) else {}


def _ends_whole(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
