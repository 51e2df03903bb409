"""Lines broken by texts, invalid lines, and blocks of any size."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from foretell.core.past_jobs import Mark
from foretell.history.accounting_lines import LONGEST_LINE, TOO_LONG, Complaints, Layout, read_lines

from .conftest import NAMES, Read, line, step

TEXT = (
    line(JobID="7", JobName="tra|in", SubmitLine="sbatch a.sh --note x|y|z")
    + step("7", "batch", MaxRSS="10K")
    + line(JobID="8", SubmitLine="sbatch b.sh --text one\ntwo|2\nthree")
    + step("8", "batch", MaxRSS="20K")
    + line(JobID="9_1", JobIDRaw="9", JobName="größe\u2028✓")
    + step("9_1", "0", MaxRSS="30K")
)


@pytest.mark.parametrize("block", [1, 7, 64, 10**6])
def test_blocks_of_any_size_give_the_same_jobs(block: Any) -> None:
    found = Read(TEXT, block=block)
    assert [(job.job, job.peak_memory_bytes) for job in found.jobs] == [(7, 10240), (8, 20480), (9, 30720)]
    assert found.complaints.found == {}


def test_separators_and_newlines_within_texts_are_kept() -> None:
    found = Read(TEXT)
    assert (found.kind(0).name, found.kind(0).work_directory) == ("tra|in", "/u/ada")
    assert found.kind(0).command == "sbatch a.sh --note x|y|z"
    assert found.kind(1).command == "sbatch b.sh --text one\ntwo|2\nthree"
    assert found.kind(2).name == "größe\u2028✓"


def test_a_separator_in_a_name_before_the_numbers() -> None:
    names = ("JobID", "JobName", "State", "ElapsedRaw", "MaxRSS")
    found = Read("7|a|b|c|COMPLETED|12|\n7.batch|batch|COMPLETED|12|8K\n", names=names)
    assert (found.kind().name, found.jobs[0].elapsed_s, found.jobs[0].peak_memory_bytes) == ("a|b|c", 12, 8192)


def test_an_ambiguous_line_is_reported() -> None:
    names = ("JobID", "JobName", "NNodes", "Comment", "State", "ElapsedRaw")
    found = Read("7|1|2|3|4|COMPLETED|12\n8|a|2|3|b|COMPLETED|12\n", names=names)
    assert [(job.job, job.nodes) for job in found.jobs] == []
    assert found.reasons() == {"not understood": (2, 2)}


def test_an_unambiguous_line_is_read() -> None:
    names = ("JobID", "JobName", "NNodes", "Comment", "State", "ElapsedRaw")
    found = Read("7|1|b|3|4|COMPLETED|12\n", names=names)
    assert [(found.kind().name, job.nodes) for job in found.jobs] == [("1|b", 3)]


def test_an_invalid_line_is_reported_once_with_its_number_and_nothing_else_is_lost() -> None:
    names = NAMES[:-3]  # without a free text at the end that could continue
    good = [line(JobID=str(number)).rsplit("|", 3)[0] + "\n" for number in (7, 8)]
    found = Read(good[0] + "sacct: error: lost\nand more\n\n" + good[1], names=names)
    assert [job.job for job in found.jobs] == [7, 8]
    assert found.reasons() == {"not understood": (2, 3)}
    assert found.complaints.found["not understood"].text == "sacct: error: lost"


def test_a_message_of_sacct_is_not_part_of_a_command() -> None:
    found = Read(line() + "sacct: error: lost\n" + line(JobID="8"))
    assert [found.kind(place).command for place in (0, 1)] == ["sbatch train.sh"] * 2
    assert found.reasons() == {"not understood": (1, 3)}


def test_the_job_of_an_incomplete_line_is_left_out() -> None:
    whole = line(JobID="7") + line(JobID="8") + step("8", "batch", MaxRSS="10K")
    found = Read(whole + step("8", "0", MaxRSS="9999999K")[:40])
    assert [job.job for job in found.jobs] == [7]
    assert [(one.count, one.line) for one in found.complaints.found.values()] == [(1, 5)]


def test_a_short_line_in_the_middle_is_reported() -> None:
    found = Read(line(JobID="7") + "8|8|c1\n" + line(JobID="9"))
    assert [job.job for job in found.jobs] == [7, 9]
    assert found.reasons() == {"not understood": (1, 3)}


def test_invalid_text_and_windows_line_ends() -> None:
    data = line(JobName="caf\xe9").encode("latin-1").replace(b"\n", b"\r\n")
    found = Read(data + line(JobID="8").encode())
    assert [job.job for job in found.jobs] == [7, 8]
    assert found.kind(0).name == "caf\ufffd"
    assert found.kind(0).command == "sbatch train.sh"


def test_the_head_line_of_an_appended_file() -> None:
    found = Read(line() + "|".join(NAMES) + "\n" + line(JobID="8"))
    assert ([job.job for job in found.jobs], found.complaints.found, found.unfinished) == ([7, 8], {}, 0)


def test_a_line_of_any_length_takes_bounded_memory() -> None:
    """A hundred mebibytes without a newline, between two jobs."""

    def make_blocks() -> Iterator[bytes]:
        yield line(JobID="7").encode()
        yield from (b"x" * 2**20 for _ in range(100))
        yield b"\n" + line(JobID="8").encode()

    complaints, layout = Complaints(), Layout(NAMES)
    numbers: list[int] = []
    tracemalloc.start()
    for lines in read_lines(make_blocks(), layout, complaints, start=Mark(lines=1)):
        numbers += lines.numbers
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 2**20
    assert numbers == [2, 4]
    assert [(one.reason, one.count, one.line, one.text) for one in complaints.found.values()] == [
        (TOO_LONG, 1, 3, "x" * 80)
    ]


@pytest.mark.parametrize("block", [2**16, 2**20, 10**8])
@pytest.mark.parametrize("surplus", [0, 1])
def test_the_longest_allowed_line(block: Any, surplus: int) -> None:
    plain = line(JobID="8", SubmitLine="")
    longest = line(JobID="8", SubmitLine="s" * (LONGEST_LINE + surplus + 1 - len(plain)))
    found = Read(line(JobID="7") + longest + line(JobID="9"), block=block)
    assert [job.job for job in found.jobs] == [7, 9] if surplus else [7, 8, 9]
    assert found.reasons() == ({TOO_LONG: (1, 3)} if surplus else {})


def test_the_search_for_line_ends_is_bounded() -> None:
    """Newlines and separators that never form a line take time proportional to the text."""
    broken = "8|8|c1\n" + "|\n" * 50_000 + "\n" * 50_000
    found = Read(line(JobID="7") + broken + line(JobID="9"))
    assert [job.job for job in found.jobs] == [7, 9]
    assert found.complaints.total >= 1


def test_the_search_for_separators_is_bounded() -> None:
    names = ("JobID", "State", "ElapsedRaw", "JobName", "WorkDir", "SubmitLine", "Comment", "AdminComment", "Extra")
    found = Read("7|COMPLETED|5|" + "|" * 45 + "\n8|COMPLETED|5||||||\n", names=names)
    assert ([job.job for job in found.jobs], found.reasons()) == ([8], {"not understood": (1, 2)})


def test_the_number_of_reasons_is_bounded() -> None:
    text = "".join(line(JobID=str(number), ElapsedRaw=f"x{number}") for number in range(1000))
    found = Read(text)
    assert (found.complaints.total, len(found.complaints.found) < 30) == (1000, True)
