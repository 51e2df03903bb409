"""Jobs to be measured: always the same for a number, of a size that suits the link, and kept as lines."""

from dataclasses import replace
from pathlib import Path

import pytest

from foretell.core.cycles import Cycle, Resource
from foretell.core.errors import ImportDataError
from foretell.distributed.consumption import Setting, Strategy
from foretell.distributed.job_draws import TRANSFER_S, draw_job, find_family, read_job
from foretell.distributed.measured_jobs import JobFile, JobRow, build_jobs

SPEED = 2.0**33
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


def test_a_number_draws_the_same_job_each_time() -> None:
    first, again = (draw_job(3, SETTING, seed=7, flops_per_s=SPEED) for _ in range(2))
    assert first == again
    assert first.setting == SETTING
    assert draw_job(4, SETTING, seed=7, flops_per_s=SPEED).network != first.network


def test_families_take_turns() -> None:
    names = [find_family(number, seed=7) for number in range(20)]
    assert len(set(names)) > 4
    assert "" not in names


@pytest.mark.parametrize("link", [2.5e7, 1e8])
def test_gradients_take_a_while_on_the_link(link: float) -> None:
    setting = replace(SETTING, link_bytes_per_s=link)
    job = draw_job(1, setting, seed=7, flops_per_s=SPEED)
    seconds = sum(gradient.bytes_ for gradient in read_job(job).gradients) / link
    low, high = TRANSFER_S
    assert low <= seconds <= high


def test_a_faster_core_gets_a_larger_batch() -> None:
    slow, fast = (draw_job(1, SETTING, seed=7, flops_per_s=speed).batch for speed in (2.0**30, 2.0**36))
    assert slow < fast


def test_rows_are_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    rows = [build_row(0), build_row(1, others=0.4)]
    file = JobFile(path)
    file.start()
    for row in rows:
        file.add(row)
    assert JobFile(path).read() == rows
    assert [row.disturbed for row in rows] == [False, True]


@pytest.mark.parametrize("line", [{"number": 1}, {"setting": {"strategy": "ps"}, "cycles": []}])
def test_a_line_that_is_no_row_is_told(line: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    file = JobFile(path)
    file.start()
    file.append(line)
    with pytest.raises(ImportDataError, match="no measured training"):
        file.read()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"format": "foretell device"}\n')
    with pytest.raises(ImportDataError, match="foretell consumption learn"):
        JobFile(path).start()


def test_a_job_is_the_median_of_its_quiet_times() -> None:
    times = [build_row(repetition=n, iteration_s=s) for n, s in enumerate((0.1, 0.12, 0.11))]
    loud = [build_row(repetition=3, iteration_s=0.5, others=1.0)]
    (job,) = build_jobs([*times, *loud])
    assert job.iteration_s == pytest.approx(0.11)
    assert job.family == find_family(0, seed=7)
    assert job.workload.batch == 4
    assert job.cycles[Resource.TRANSMIT].bursts == 30


def test_where_no_time_was_quiet_the_loud_ones_count() -> None:
    (job,) = build_jobs([build_row(iteration_s=0.5, others=1.0)])
    assert job.iteration_s == 0.5


def test_other_settings_are_other_jobs() -> None:
    other = replace(build_row(), setting=replace(SETTING, servers=2))
    assert len(build_jobs([build_row(), other])) == 2
