"""Tables of runs and configurations."""

import re

import pandas as pd
import pytest

from foretell.apps.tables import Columns, read_runs
from foretell.entities.app import Scale
from foretell.entities.run import Allocation, Machine, Run, RunSpec, State, Usage
from foretell.errors import ImportDataError
from foretell.reports.records import build_runs_frame


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
    read = read_runs(build_runs_frame(runs), app="new", columns=Columns(elapsed="elapsed_s"))
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
        ("size *", "no formula"),
        ("size.real", "only numbers, names"),
    ],
)
def test_proportion_to_what_is_no_number_is_refused(per: str, said: str) -> None:
    with pytest.raises(ImportDataError, match=re.escape(said)):
        read_runs(_FRAME, app="app", columns=Columns(elapsed="seconds", per=per))
