"""Saved accounting: plain or gzipped files, pipes, or standard input, as streams of bytes."""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from foretell.errors import ImportDataError, NotFoundError
from foretell.history.layout import Layout, parse_layout
from foretell.history.lines import BLOCK, LONGEST_LINE

STDIN = "-"
_PRINT = 64 * 1024
_GZIP = b"\x1f\x8b"
_OTHER_PACKING = {
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "unzip",
    b"\x1f\x9d": "uncompress",
}


@contextmanager
def open_file(source: str) -> Iterator[BinaryIO]:
    """A saved text, unpacked where it is gzipped.

    Raises:
        NotFoundError: if there is no such file.
        ImportDataError: if it cannot be read, or its packing is damaged.
    """
    try:
        if source == STDIN:
            yield _unpack(cast("BufferedReader", sys.stdin.buffer), source="standard input")
        else:
            with Path(source).open("rb") as file:
                yield _unpack(file, source=source)
    except FileNotFoundError:
        raise NotFoundError("file", source, hint="Save one with 'sacct --parsable2 …', or leave it out.") from None
    except (OSError, EOFError, zlib.error) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ImportDataError(f"{source}: cannot be read to its end ({reason}); what was read before is kept") from exc


def _unpack(file: BufferedReader, *, source: str) -> BinaryIO:
    begin = file.peek(8)
    if begin.startswith(_GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    for magic, program in _OTHER_PACKING.items():
        if begin.startswith(magic):
            raise ImportDataError(
                f"{source}: is compressed, but not with gzip; unpack it first with {program!r}, or hand it over "
                f"unpacked as standard input: foretell history import -"
            )
    return file


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.read, BLOCK), b"")


def read_head(file: BinaryIO, *, source: str) -> Layout:
    """The layout that the first line names.

    Raises:
        ImportDataError: if it names none.
    """
    line = file.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE:
        raise ImportDataError(f"{source}: the first line is longer than {LONGEST_LINE:,} bytes: no text of sacct's")
    return parse_layout(line.decode("utf-8", "replace"), source=source)


def print_file(source: str) -> str | None:
    """What tells a file from others, however it is called: how it begins, and its size. Nothing for what is no file."""
    path = Path(source)
    if source == STDIN or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return f"file {hashlib.sha256(file.read(_PRINT)).hexdigest()[:32]} {path.stat().st_size}"
    except OSError:
        return None
