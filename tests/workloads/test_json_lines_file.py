"""Files of JSON lines: a header, no line lost, and other formats refused."""

from pathlib import Path

import pytest

from foretell.core.errors import ImportDataError, OutputError
from foretell.workloads.measurement_files import JsonLinesFile

HEAD = {"format": "test lines", "version": 1}


def open_file(path: Path) -> JsonLinesFile:
    return JsonLinesFile(path, format_="test lines", version=1, command="foretell test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "kept.jsonl"


def test_a_new_file_gets_its_header_once(path: Path) -> None:
    head = {"format": "test lines", "version": 1, "n": 1}
    assert open_file(path).open(lambda: head) == head
    assert open_file(path).open(lambda: {"format": "another"}) == head


def test_appended_lines_are_read(path: Path) -> None:
    file = open_file(path)
    file.open(lambda: HEAD)
    for n in range(3):
        file.append({"n": n})
    head, lines = open_file(path).split()
    assert head == HEAD
    assert list(lines) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_only_a_line_that_was_cut_off_is_lost(path: Path) -> None:
    file = open_file(path)
    file.open(lambda: HEAD)
    file.append({"n": 0})
    with path.open("a") as stream:
        stream.write('{"n": 1, "half')
    file.append({"n": 2})
    assert list(file.split()[1]) == [{"n": 0}, {"n": 2}]


@pytest.mark.parametrize("text", ['{"format": "other"}\n', "[1, 2]\n", '"text"\n'])
def test_a_file_of_another_format_is_refused(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ImportDataError, match=r"not a file of 'foretell test'. Use another name"):
        open_file(path).open(dict)


def test_a_file_of_another_version_is_refused(path: Path) -> None:
    with pytest.raises(ImportDataError, match=r"version 2 of the format; expected 1. Use another name"):
        open_file(path).open(lambda: {**HEAD, "version": 2})


def test_two_processes_cannot_measure_at_once(path: Path) -> None:
    file = open_file(path)
    file.open(lambda: HEAD)
    predicted = pytest.raises(OutputError, match="another 'foretell test' is writing to it")
    with file.locked(), predicted, open_file(path).locked():
        raise AssertionError
    with open_file(path).locked():
        file.append({"n": 1})


def test_a_file_that_cannot_be_read_or_written_is_an_error(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ImportDataError, match="cannot be read"):
        open_file(path).open(dict)
    with pytest.raises(OutputError, match="cannot be written"):
        open_file(path / "below").append({})
