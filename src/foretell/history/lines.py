"""Blocks of bytes → lines with the places of their fields. What free texts broke is mended, what is no line told."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foretell.entities.history import Complaint, Mark
from foretell.history.layout import Layout

Places = NDArray[np.intp]

BLOCK = 2**20
_MOST_HELD = 64 * 2**20
_SHOWN = 80
_SEPARATOR, _NEWLINE = ord("|"), ord("\n")
# What stands in for separators and newlines within a text, as long as its line is one of many.
_STAND_INS = {"|": "\ue07c", "\n": "\ue00a"}
_HIDE, _SHOW = str.maketrans(_STAND_INS), str.maketrans({value: key for key, value in _STAND_INS.items()})

NOT_UNDERSTOOD = "not understood"
CUT_OFF = "the text ends within a line, so its job is left out"


@dataclass(slots=True)
class Complaints:
    """What was left out and why, by reason; only the first of each is remembered."""

    found: dict[str, Complaint] = field(default_factory=dict)

    def add(self, reason: str, *, line: int, text: str) -> None:
        known = self.found.get(reason)
        first = (known.line, known.text) if known else (line, text[:_SHOWN])
        count = known.count + 1 if known else 1
        self.found[reason] = Complaint(reason=reason, count=count, line=first[0], text=first[1])


@dataclass(frozen=True)
class Lines:
    """Whole lines, each with its number; ``ends`` has a row for each line and a column for each field.

    ``upto`` is how far the text is dealt with by them.
    """

    data: bytes
    ends: Places
    numbers: Sequence[int]
    upto: Mark

    @cached_property
    def characters(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, dtype=np.uint8)

    @cached_property
    def begins(self) -> Places:
        """Where each line begins."""
        return np.concatenate([np.zeros(1, dtype=np.intp), self.ends[:-1, -1] + 1])[: len(self.ends)]

    def begins_of(self, column: int) -> Places:
        return self.begins if column == 0 else self.ends[:, column - 1] + 1

    def split(self, rows: Places) -> list[list[str]]:
        """The fields of some lines."""
        places = zip(self.begins[rows].tolist(), self.ends[rows, -1].tolist(), strict=True)
        return [split_fields(self.data[begin:end]) for begin, end in places]

    def cut(self, rows: Places, first: int, last: int) -> list[bytes]:
        """Some neighbouring fields of some lines, uncut."""
        places = zip(self.begins_of(first)[rows].tolist(), self.ends[rows, last].tolist(), strict=True)
        return [self.data[begin:end] for begin, end in places]


def split_fields(data: bytes) -> list[str]:
    """The texts of fields, as they were."""
    if data.isascii():
        return data.decode("ascii").split("|")
    return [text.translate(_SHOW) for text in data.decode("utf-8", "replace").split("|")]


def read_lines(blocks: Iterable[bytes], layout: Layout, complaints: Complaints, *, start: Mark) -> Iterator[Lines]:
    """The lines of a text, block by block; a job and its steps are never parted."""
    reader, mark, held = _Reader(layout, complaints), start, b""
    for block in blocks:
        held += block
        cut = _find_last_job(held, layout)
        if cut:
            lines = reader.read(held[:cut], mark)
            mark, held = lines.upto, held[cut:]
            yield lines
    if held and not held.endswith(b"\n"):
        last = held.decode("utf-8", "replace").splitlines()[-1]
        complaints.add(CUT_OFF, line=mark.lines + held.count(b"\n") + 1, text=last)
    elif held:
        yield reader.read(held, mark)


def _find_last_job(data: bytes, layout: Layout) -> int:
    """Where the last job begins: its steps may still come. 0 if only one is there."""
    end = data.rfind(b"\n") + 1  # a line that is not whole yet may turn out to be a step's
    while (start := data.rfind(b"\n", 0, max(end - 1, 0)) + 1) > 0:
        if layout.starts_job(data[start : start + 1024].decode("utf-8", "replace")):
            return start
        end = start
    return data.rfind(b"\n") + 1 if len(data) > _MOST_HELD else 0


@dataclass(frozen=True, slots=True)
class _Reader:
    layout: Layout
    complaints: Complaints

    def read(self, data: bytes, start: Mark) -> Lines:
        count = data.count(b"\n")
        upto = Mark(position=start.position + len(data), lines=start.lines + count)
        data = data.replace(b"\r\n", b"\n") if b"\r" in data else data
        ends = self._find_ends(data, count)
        if ends is not None:
            return Lines(data, ends, range(start.lines + 1, upto.lines + 1), upto)
        lines = data.decode("utf-8", "replace").split("\n")[:-1]
        mended = list(_Mender(self.layout, self.complaints).mend(lines, start.lines + 1))
        whole = "".join("|".join(text.translate(_HIDE) for text in fields) + "\n" for _, fields in mended).encode()
        ends = self._find_ends(whole, len(mended))
        assert ends is not None
        return Lines(whole, ends, [number for number, _ in mended], upto)

    def _find_ends(self, data: bytes, count: int) -> Places | None:
        """Where each field of each line ends; ``None`` if a line has more or fewer fields than it should."""
        characters = np.frombuffer(data, dtype=np.uint8)
        found = np.flatnonzero((characters == _SEPARATOR) | (characters == _NEWLINE))
        if len(found) != count * self.layout.width:
            return None
        ends = found.reshape(count, self.layout.width)
        return ends if (characters[ends[:, -1]] == _NEWLINE).all() else None


@dataclass(slots=True)
class _Mender:
    """Puts lines together that a newline in a free text broke apart, and tells separators of texts from sacct's own."""

    layout: Layout
    complaints: Complaints
    _whole: tuple[int, list[str]] | None = None
    _begun: tuple[int, str] | None = None

    def mend(self, lines: Iterable[str], first: int) -> Iterator[tuple[int, list[str]]]:
        """Each line that is understood with its number, as fields."""
        for number, line in enumerate(lines, start=first):
            fields = self.layout.fit(line)
            if fields is not None:
                yield from self._finish()
                self._whole = number, fields
            elif self.layout.starts_record(line):
                yield from self._finish()
                self._begun = number, line
            else:
                self._go_on(number, line)
        yield from self._finish()

    def _go_on(self, number: int, line: str) -> None:
        if self._begun is not None:
            begun, text = self._begun[0], f"{self._begun[1]}\n{line}"
            fields = self.layout.fit(text)
            self._begun = (begun, text) if fields is None else None
            self._whole = None if fields is None else (begun, fields)
        elif self._whole is not None and self.layout.ends_in_text and not line.startswith("sacct: "):
            self._whole[1][-1] += f"\n{line}"
        elif line.strip():
            self._complain(number, line)

    def _finish(self) -> Iterator[tuple[int, list[str]]]:
        if self._whole is not None:
            yield self._whole
        if self._begun is not None:
            self._complain(*self._begun)
        self._whole = self._begun = None

    def _complain(self, number: int, line: str) -> None:
        self.complaints.add(NOT_UNDERSTOOD, line=number, text=line)
