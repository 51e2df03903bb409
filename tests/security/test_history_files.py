"""Accounting and history files: control characters are escaped, and no value breaks the store or an import."""

import bz2
import gzip
import io
import lzma
import os
import sqlite3
import sys
import threading
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from foretell.core.errors import ImportDataError
from foretell.history.api import import_history, list_history_apps, report_waste
from foretell.stores import open_store
from foretell.stores.job_history import JobFilter, JobHistory

NAMES = (
    "JobID", "JobIDRaw", "Cluster", "User", "Account", "Partition", "State", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "AllocTRES", "NNodes", "NTasks", "TotalCPU", "MaxRSS", "AveDiskRead", "JobName", "WorkDir",
    "SubmitLine",
)  # fmt: skip
# Colours, a link, the title of a window, a C1 control, right to left, carriage return, a bell, NUL, half a character.
EVIL = "\x1b[31mred\x1b]8;;http://evil/\x07x\x1b]0;title\x07\x9b2J\u202eabc\rdef\x07\0$\\frac{"
JOB = {
    "JobID": "7", "Cluster": "c1", "User": "ada", "Account": "a1", "Partition": "cpu", "State": "COMPLETED",
    "Submit": "2025-03-01T10:00:00", "Start": "2025-03-01T11:00:00", "End": "2025-03-01T12:00:00", "ElapsedRaw": "3600",
    "TimelimitRaw": "60", "AllocTRES": "cpu=4,mem=8G,node=1", "NNodes": "1", "JobName": "train", "WorkDir": "/u/ada",
    "SubmitLine": "sbatch t.sh",
}  # fmt: skip


def line(**fields: str) -> str:
    row = {**JOB, **fields}
    row.setdefault("JobIDRaw", row["JobID"])
    return "|".join(row.get(name, "") for name in NAMES) + "\n"


def write(path: Path, lines: Sequence[str], *, encoding: str = "utf-8") -> Path:
    path.write_bytes(("|".join(NAMES) + "\n" + "".join(lines)).encode(encoding, "surrogatepass"))
    return path


def build_evil_lines() -> list[str]:
    texts = {"Cluster": "c", "User": "ada", "Account": "a1", "JobName": "train", "WorkDir": "/u/", "Partition": "cpu"}
    evil = {name: f"{text}{EVIL}" for name, text in texts.items()}
    return [
        line(
            **evil,
            JobID=str(number),
            ElapsedRaw=str(30 + 60 * (number % 6 + 1)),
            SubmitLine=f"sbatch t.sh --epochs {number % 6 + 1} --mode {EVIL}{number % 3} --rate 1e999 --cost =1+1",
        )
        for number in range(100, 160)
    ]


def find_controls(text: str) -> set[str]:
    """What is neither visible nor a newline."""
    return {one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


def test_control_characters_of_jobs_are_escaped(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    write(tmp_path / "jobs.txt", [*build_evil_lines(), line(JobID="1", State=f"LOST{EVIL}")])
    shown = [foretell("history", "import", "jobs.txt", folder=tmp_path)]
    name = foretell("history", "apps", "--json", folder=tmp_path).record[0]["app"]
    question = [name, "--set", "epochs=9", "--set", "mode=other", "--set", "cost==1+1"]
    commands = [
        ["history", "apps"],
        *(["history", "report", "--by", by, "--site", "osc"] for by in ("user", "account", "app", "partition")),
        ["history", "report", "--by", "user", "--plot", "waste.svg"],
        ["build", name],
        ["predict", *question],
        ["predict", name],
        ["predict", *question, "--json"],
        ["explain", *question],
        ["recommend", *question, "--site", "osc"],
        ["runs", "list", name],
        ["status", name],
        ["history", "import", f"no{EVIL}".replace("\0", ""), "--cluster", "x"],
    ]
    shown += [foretell(*words, folder=tmp_path) for words in commands]
    assert [find_controls(outcome.out + outcome.err) for outcome in shown] == [set()] * len(shown)
    assert [outcome.code for outcome in shown[:8]] == [0] * 8
    assert find_controls((tmp_path / "waste.svg").read_text()) == set()


@pytest.mark.parametrize(
    "mark",
    [
        "5",
        "abc",
        "",
        "null",
        "{}",
        '{"n": NaN}',
        '{"position": NaN, "lines": 1}',
        '{"position": true, "lines": 1}',
        '{"position": "1", "lines": 1}',
        '{"position": -1, "lines": 1}',
        '{"position": 1e3, "lines": 1}',
        f'{{"position": {2**63}, "lines": 1}}',
        f'{{"position": {"9" * 5000}, "lines": 1}}',
        f'{{"position": 900, "lines": {10**40}}}',
        '{"\x1b[31m": 1}',
        r'{"\u001b[31m": 1}',
        "[" * 100_000,
    ],
    ids=lambda mark: repr(mark[:40]),
)
def test_an_invalid_mark_is_ignored(tmp_path: Path, foretell: Callable[..., Any], mark: Any) -> None:
    write(tmp_path / "jobs.txt", [line(JobID=str(number)) for number in range(3)])
    first = foretell("history", "import", "jobs.txt", "--json", folder=tmp_path).record
    assert (first["jobs"], first["read_before"]) == (3, 0)
    with sqlite3.connect(tmp_path / ".foretell/store.db") as connection:
        assert connection.execute("UPDATE history_marks SET value = ?", (mark,)).rowcount == 1
    again = foretell("history", "import", "jobs.txt", "--json", folder=tmp_path)
    assert (again.code, find_controls(again.out + again.err)) == (0, set()), again.err[-300:]
    assert (again.record["jobs"], again.record["changed"], again.record["read_before"]) == (3, 0, 0)
    last = foretell("history", "import", "jobs.txt", "--json", folder=tmp_path).record
    assert (last["jobs"], last["read_before"]) == (0, first["lines"] + 1)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


HUGE = (
    "9" * 17,
    "9" * 18,
    "9" * 19,
    "9" * 40,
    "9" * 5000,
    f"{2**31}",
    f"{2**62}",
    f"{2**63}",
    "1e308",
    "-5",
    "-0",
    "nan",
)
FIGURES = {
    "JobID": HUGE,
    "ElapsedRaw": (*HUGE, "inf", "١٢", "0x10"),
    "TimelimitRaw": HUGE,
    "NNodes": HUGE,
    "AllocTRES": [f"{name}={number}" for name in ("cpu", "mem", "node", "gres/gpu") for number in (*HUGE, "99999999P")],
    "TotalCPU": ("99999999999999999999-00:00:00", "-1:00:00", "99:99:99", "1:2:3:4"),
    "Submit": ("0000-01-01T00:00:00", "1969-12-31T23:59:59", "9999-12-31T23:59:59", "9" * 17, "9" * 30, "-1"),
    "Start": ("0000-00-00T00:00:00", "9999-99-99T99:99:99", "2025-02-31T25:61:61"),
}  # fmt: skip


def test_no_value_breaks_an_import_or_later_commands(store: str, tmp_path: Path) -> None:
    odd = [
        line(**{"JobID": str(1000 + number), column: value})
        for column, values in FIGURES.items()
        for number, value in enumerate(values)
    ]
    steps = [
        line(JobID=f"7.{number}", MaxRSS=f"{value}P", NTasks=value, AveDiskRead=f"{value}E", ElapsedRaw="")
        for number, value in enumerate(HUGE)
    ]
    result = import_history([write(tmp_path / "jobs.txt", [line(), *odd, line(JobID="8"), *steps])], store=store)
    assert result.jobs + sum(one.count for one in result.complaints) >= len(odd)
    assert max(len(one.reason) for one in result.complaints) <= 200
    (app,) = list_history_apps(store=store)
    assert app.core_hours >= 0
    assert report_waste(store=store).total.jobs == app.jobs
    with open_store(store) as opened:
        columns = JobHistory(opened).read(JobFilter(), ["submitted_at", "elapsed_s", "cores", "job"])
        assert all(values.min() >= 0 for values in columns.values())
        assert 8 in columns["job"]


def test_invalid_text_survives_storing_and_reading(store: str, tmp_path: Path) -> None:
    raw = line(JobName="a\0b", User="\ud800x").encode("utf-8", "surrogatepass").replace(b"/u/ada", b"/u/\xff\xfe")
    path = tmp_path / "jobs.txt"
    path.write_bytes(("|".join(NAMES) + "\n").encode() + raw)
    assert import_history([path], store=store).jobs == 1
    assert [app.jobs for app in list_history_apps(store=store)] == [1]


@pytest.mark.parametrize("pack", [lzma.compress, bz2.compress], ids=["xz", "bzip2"])
def test_other_compressions_are_refused_with_a_remedy(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "jobs.txt"
    path.write_bytes(pack(write(tmp_path / "plain.txt", [line()]).read_bytes()))
    with pytest.raises(ImportDataError, match=r"is compressed, but not with gzip; decompress it"):
        import_history([path], store=tmp_path / "s.db")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not name JobID"),
        (b"\0" * 5_000_000, "longer than 1,048,576 bytes"),
        (b"\x7fELF\x01\x02\n" * 1000, "does not name JobID"),
        (gzip.compress(b"\0" * 100), "does not name JobID"),
        (gzip.compress(b"JobID|State|ElapsedRaw\n1|COMPLETED|5\n")[:-9] + b"damaged!!", "cannot be read to its end"),
        (b"\x1f\x8bnot gzip at all", "cannot be read to its end"),
    ],
    ids=["empty", "zeros", "a program", "zeros, packed", "damaged", "not packed"],  # packing writes the time of day
)  # fmt: skip
def test_other_files_are_refused_in_one_sentence(
    tmp_path: Path, foretell: Callable[..., Any], content: Any, message: str
) -> None:
    (tmp_path / "jobs.txt").write_bytes(content)
    outcome = foretell("history", "import", "jobs.txt", folder=tmp_path)
    assert (outcome.code, outcome.err.count("\n"), find_controls(outcome.err)) == (1, 1, set())
    assert message in outcome.err


def test_a_file_without_a_final_newline_reports_what_was_left_out(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    path = write(tmp_path / "jobs.txt", [line(), line(JobID="8")])
    path.write_bytes(path.read_bytes()[:-1])
    outcome = foretell("history", "import", "jobs.txt", folder=tmp_path)
    assert "ends without a newline" in " ".join(outcome.out.split())
    assert "1 job" in outcome.out


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_like_a_file(tmp_path: Path, packed: bool) -> None:
    content = write(tmp_path / "plain.txt", [line(JobID=str(number)) for number in range(2000)]).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.compress(content) if packed else content))
    writer.start()
    assert import_history([pipe], store=tmp_path / "s.db").jobs == 2000
    writer.join()


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_may_be_gzipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    content = write(tmp_path / "plain.txt", [line()]).read_bytes()
    data = io.BytesIO(gzip.compress(content) if packed else content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(data)))
    assert import_history(["-"], store=tmp_path / "s.db").jobs == 1


def test_a_highly_compressed_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """A hundred megabytes of one character in a file of a hundred kilobytes."""
    import tracemalloc

    path = tmp_path / "jobs.gz"
    head = ("|".join(NAMES) + "\n" + line()).encode()
    path.write_bytes(gzip.compress(head + b"x" * 10**8 + b"\n" + line(JobID="8").encode(), compresslevel=1))
    tracemalloc.start()
    result = import_history([path], store=tmp_path / "s.db")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (result.jobs, [one.line for one in result.complaints]) == (2, [3])
    assert peak < 60 * 2**20
