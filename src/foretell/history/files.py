"""Saved accounting: plain or gzipped files, or standard input, as streams that tell where they are."""

import gzip
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from foretell.errors import ImportDataError, NotFoundError
from foretell.history.layout import Layout, parse_layout
from foretell.history.lines import BLOCK

STDIN = "-"
_PRINT = 64 * 1024
_GZIP = b"\x1f\x8b"


@contextmanager
def open_file(source: str) -> Iterator[BinaryIO]:
    """A saved text, unpacked where it is gzipped.

    Raises:
        NotFoundError: if there is no such file.
        ImportDataError: if it cannot be read, or its packing is damaged.
    """
    if source == STDIN:
        yield sys.stdin.buffer
        return
    try:
        with Path(source).open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            yield cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
    except FileNotFoundError:
        raise NotFoundError("file", source, hint="Save one with 'sacct --parsable2 …', or leave it out.") from None
    except (OSError, EOFError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ImportDataError(f"{source}: cannot be read to its end ({reason}); what was read before is kept") from exc


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.read, BLOCK), b"")


def read_head(file: BinaryIO, *, source: str) -> Layout:
    """The layout that the first line names.

    Raises:
        ImportDataError: if it names none.
    """
    return parse_layout(file.readline(BLOCK).decode("utf-8", "replace"), source=source)


def print_file(source: str) -> str | None:
    """What tells a file from others, however it is called: how it begins, and its size. Nothing for standard input."""
    if source == STDIN:
        return None
    path = Path(source)
    try:
        with path.open("rb") as file:
            return f"file {hashlib.sha256(file.read(_PRINT)).hexdigest()[:32]} {path.stat().st_size}"
    except OSError:
        return None
