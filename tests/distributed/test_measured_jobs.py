"""Files of measured trainings: written and read again, compressed or not, and merged into jobs."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from foretell.core.errors import ImportDataError
from foretell.core.observation import Cycle, Resource
from foretell.distributed.consumption import Setting, Strategy
from foretell.distributed.measured_jobs import JobFile, JobRow, build_jobs, find_family, read_rows

SETTING = Setting(strategy=Strategy.SERVERS, workers=2, servers=1, link_bytes_per_s=2.5e7, device="core", share=0.5)


def build_row(number: int = 0, *, repetition: int = 0, iteration_s: float = 0.1, others: float = 0.0) -> JobRow:
    cycle = Cycle(
        burst_s=0.06, idle_s=0.04, burst_amount=2.4e7, idle_amount=0.0, period_s=iteration_s, bursts=30, chance=0.01
    )
    return JobRow(
        number=number,
        repetition=repetition,
        network=number,
        seed=7,
        batch=4,
        setting=SETTING,
        iteration_s=iteration_s,
        alone_s=0.05,
        used_s=0.04,
        cycles={Resource.TRANSMIT: cycle},
        others=others,
    )


def test_rows_are_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    rows = [build_row(0), build_row(1, others=0.4)]
    file = JobFile(path)
    file.start()
    for row in rows:
        file.add(row)
    assert JobFile(path).read() == rows
    assert [row.disturbed for row in rows] == [False, True]


@pytest.mark.parametrize("line", [{"number": 1}, {"setting": {"strategy": "ps"}, "cycles": []}])
def test_a_line_that_is_no_row_is_refused(line: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    file = JobFile(path)
    file.start()
    file.append(line)
    with pytest.raises(ImportDataError, match="not a measured training"):
        file.read()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"format": "foretell device"}\n')
    with pytest.raises(ImportDataError, match="python -m lab measure"):
        JobFile(path).start()


def test_a_job_is_the_median_of_its_undisturbed_measurements() -> None:
    times = [build_row(repetition=n, iteration_s=s) for n, s in enumerate((0.1, 0.12, 0.11))]
    disturbed = [build_row(repetition=3, iteration_s=0.5, others=1.0)]
    (job,) = build_jobs([*times, *disturbed])
    assert job.iteration_s == pytest.approx(0.11)
    assert job.family == find_family(0, seed=7)
    assert job.workload.batch == 4
    assert job.cycles[Resource.TRANSMIT].bursts == 30


def test_without_undisturbed_measurements_the_disturbed_ones_count() -> None:
    (job,) = build_jobs([build_row(iteration_s=0.5, others=1.0)])
    assert job.iteration_s == 0.5


def test_other_settings_are_other_jobs() -> None:
    other = replace(build_row(), setting=replace(SETTING, servers=2))
    assert len(build_jobs([build_row(), other])) == 2


def write_rows(path: Path, rows: list[JobRow]) -> Path:
    file = JobFile(path)
    file.start()
    for row in rows:
        file.add(row)
    return path


def test_a_compressed_file_is_read_too(tmp_path: Path) -> None:
    plain = write_rows(tmp_path / "jobs.jsonl", [build_row(0)])
    packed = tmp_path / "jobs.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_rows(packed) == read_rows(plain) == [build_row(0)]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("none.jsonl", None, "no such file; measure trainings with 'python -m lab measure --out"),
        ("other.jsonl", b'{"format": "foretell device"}\n', "no file of measured trainings"),
        ("empty.jsonl", b"", "no file of measured trainings"),
        ("broken.jsonl.gz", b"nothing", "cannot be decompressed"),
    ],
)
def test_another_file_is_refused_and_stays_as_it_is(
    tmp_path: Path, name: str, content: bytes | None, expected: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImportDataError, match=expected):
        read_rows(path)
    assert content is None or path.read_bytes() == content
