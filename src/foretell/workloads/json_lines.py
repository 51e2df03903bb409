"""What is measured bit by bit: a file of JSON lines that nothing is lost from, and that one can go on with."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from foretell.core.errors import ImportDataError, OutputError
from foretell.core.private_files import open_to_append


class LinesFile:
    """A head that names the file's kind, then a line for each thing measured."""

    def __init__(self, path: Path, *, format_: str, version: int, maker: str) -> None:
        self.path = path
        self._format = format_
        self._version = version
        self._maker = maker

    def open(self, build_head: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The file's head; a new one where there is no file.

        Raises:
            ImportDataError: The file is of another kind or version.
            OutputError: It cannot be written.
        """
        head = next(self._lines(), None) if self.path.exists() else None
        if head is None:
            head = build_head()
            self.append(head)
        if head.get("format") != self._format:
            raise ImportDataError(f"{self.path}: no file of '{self._maker}'. Name another file.")
        if head.get("version") != self._version:
            raise ImportDataError(
                f"{self.path}: version {head.get('version')!r} of the format; this program reads {self._version}. "
                "Name another file."
            )
        return head

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For one who measures: two at once would measure the same, and disturb each other.

        Raises:
            OutputError: Somebody else is at it.
        """
        with self.path.open("rb") as file:
            try:
                _lock(file)
            except BlockingIOError as exc:
                raise OutputError(
                    f"{self.path}: another '{self._maker}' measures into it now. Wait for its end, or name another."
                ) from exc
            yield

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
            with open_to_append(self.path) as file:
                if file.tell() and not _ends_whole(file):
                    file.write(b"\n")
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OutputError:
            raise
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


def _lock(file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks: two at once are not found out
        return


def _ends_whole(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
