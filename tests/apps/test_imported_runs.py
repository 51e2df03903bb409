"""Tables of runs and configurations."""

import re

import pandas as pd
import pytest

from foretell.apps.imported_runs import Columns, read_runs
from foretell.apps.render import build_runs_table
from foretell.core.app import Scale
from foretell.core.errors import ImportDataError
from foretell.core.run import Allocation, Machine, Run, RunSpec, State, Usage


def _run(size: int, state: State = State.COMPLETED) -> Run:
    spec = RunSpec(
        app="old",
        parameters={"size": size, "kind": "dense"},
        allocation=Allocation(cores=2, memory_bytes=2**30),
        scale=Scale.SCALED_DOWN,
    )
    usage = Usage(elapsed_s=size / 10, cpu_s=1.0, peak_memory_bytes=size * 1000)
    machine = Machine(hostname="there", cpu_model="some", cores=8)
    return Run(spec=spec, state=state, usage=usage, machine=machine, phases={"step": 0.5}, exit_code=0)


def test_what_was_exported_comes_back() -> None:
    runs = [_run(10), _run(20, State.TIMED_OUT)]
    read = read_runs(build_runs_table(runs), app="new", columns=Columns(elapsed="elapsed_s"))
    assert read.app.parameter_names() == ("size", "kind")
    for run, back in zip(runs, read.runs, strict=True):
        assert back.spec.parameters == run.spec.parameters
        assert (back.spec.scale, back.spec.allocation.cores, back.state) == (Scale.SCALED_DOWN, 2, run.state)
        assert run.usage is not None
        assert back.usage == Usage(elapsed_s=run.usage.elapsed_s, peak_memory_bytes=run.usage.peak_memory_bytes)


def test_the_same_row_is_the_same_run_in_every_file() -> None:
    columns = Columns(elapsed="seconds")
    frame = pd.DataFrame({"size": [1, 1, 2], "seconds": [1.0, 1.0, 2.0]})
    first = read_runs(frame, app="app", columns=columns).runs
    second = read_runs(frame[::-1], app="app", columns=columns).runs
    assert {run.id for run in first} == {run.id for run in second}
    assert len({run.id for run in first}) == 3


_FRAME = pd.DataFrame({"size": [1, 2, 3], "kind": ["a", "b", "a"], "cores": [1, 2, 2], "seconds": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("per", ["size", "size ** 2 / cores"])
def test_what_times_are_in_proportion_to_is_the_apps(per: str) -> None:
    assert read_runs(_FRAME, app="app", columns=Columns(elapsed="seconds", per=per)).app.per == per


@pytest.mark.parametrize(
    ("per", "said"),
    [
        ("sise", "no column of numbers is named 'sise'; expected a formula of size, cores, gpus, nodes"),
        ("kind", "no column of numbers is named 'kind'"),
        ("size *", "per: found 'size *'; expected a formula of size"),
        ("size.real", "per: found 'size.real' in the formula 'size.real'; expected a formula of size"),
    ],
)
def test_proportion_to_what_is_no_number_is_refused(per: str, said: str) -> None:
    with pytest.raises(ImportDataError, match=re.escape(said)):
        read_runs(_FRAME, app="app", columns=Columns(elapsed="seconds", per=per))


def test_a_column_that_is_not_there_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(ImportDataError, match=r"no column 'second'; the table has .*; did you mean 'seconds'"):
        read_runs(_FRAME, app="app", columns=Columns(elapsed="second"))
    with pytest.raises(ImportDataError, match=r"no column 'xyz'; the table has [^?]*$"):
        read_runs(_FRAME, app="app", columns=Columns(elapsed="xyz"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("02:30:00", 9000), ("1-02:30:00", 95400), ("03:04.5", 184.5), ("03:04", 184), ("90s", 90), ("1.5h", 5400),
        ("1h30m", 5400), ("250ms", 0.25), ("90", 180), ("00:00:01.5", 1.5), (" 02:30:00 ", 9000),
    ],
)  # fmt: skip
def test_times_as_slurm_and_people_write_them(text: str, seconds: float) -> None:
    """A plain number is in the unit of the column, here 2 s; all others have their own."""
    frame = pd.DataFrame({"size": [1, 2], "took": [text, "1:00:00"]})
    first, second = read_runs(frame, app="app", columns=Columns(elapsed="took", elapsed_unit_s=2.0)).runs
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.elapsed_s, second.usage.elapsed_s) == (pytest.approx(seconds), 3600)


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 2**32), ("512M", 2**29), ("4096K", 2**22), ("1.5 GiB", 1610612736), ("7", 7 * 2**20)]
)
def test_memory_as_slurm_and_people_write_it(text: str, size: int) -> None:
    frame = pd.DataFrame({"size": [1, 2], "took": [1, 1], "memory": [text, None]})
    columns = Columns(elapsed="took", memory="memory", memory_unit_bytes=2**20)
    first, second = read_runs(frame, app="app", columns=columns).runs
    assert first.usage == Usage(elapsed_s=1, peak_memory_bytes=size)
    assert second.usage == Usage(elapsed_s=1)


def test_times_of_a_table_with_types() -> None:
    frame = pd.DataFrame({"size": [1, 2], "took": pd.to_timedelta(["00:01:30", "1 days"])})
    runs = read_runs(frame, app="app", columns=Columns(elapsed="took")).runs
    assert [run.usage and run.usage.elapsed_s for run in runs] == [90, 86400]


def test_a_cell_that_is_no_time_or_size_is_named_by_column_and_row() -> None:
    frame = pd.DataFrame(
        {"size": [1, 2, 3, 4], "took": ["1:00", "soon", "00:00:00", "1:2:3:4"], "memory": ["1G", "1G", "1G", "1G"]}
    )
    columns = Columns(elapsed="took", memory="memory")
    read = read_runs(frame, app="app", columns=columns)
    assert len(read.runs) == 1
    assert read.skipped == {"took is not a positive number or a time such as 90s, 1.5h or 1-02:30:00": [2, 3, 4]}
    frame = frame.assign(took=60, memory=["1G", "lots", "4X", ""])
    read = read_runs(frame, app="app", columns=columns)
    assert read.skipped == {"memory is not a number or a size such as 512M or 4GB": [2, 3]}
