"""Tests for every runner: inherit from :class:`RunnerContract` and define a ``runner`` fixture."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from foretell.core.app import Phase
from foretell.core.errors import RunnerError
from foretell.core.run import Allocation, Launch, Run, RunSpec, State
from foretell.schedulers._base import Runner

_PATIENCE_S = 60.0


def python_launch(directory: Path, code: str, *arguments: str, **fields: Any) -> Launch:
    """Return a launch of this Python in its own folder, without site packages, which starts fast."""
    argv = (sys.executable, "-I", "-S", "-c", code, *arguments)
    return Launch(argv=argv, working_directory=str(directory), run_directory=str(directory), **fields)


def poll_all(runner: Runner) -> list[Run]:
    """Return the results of all running runs."""
    runs: list[Run] = []
    until_s = time.monotonic() + _PATIENCE_S
    while runner.running:
        assert time.monotonic() < until_s, f"still running: {runner.running}"
        runs += runner.poll(1.0)
    return runs


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail if it does not within a minute."""
    until_s = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s, "waited in vain"
        time.sleep(0.01)


class RunnerContract:
    """The promises of :class:`foretell.schedulers._base.Runner`, as tests."""

    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        raise NotImplementedError("give the runner to be tested")

    @pytest.fixture
    def start(self, runner: Runner, tmp_path: Path) -> Callable[..., RunSpec]:
        """Start a Python program as run number ``number``, in ``tmp_path / str(number)``."""

        def start(
            code: str,
            *arguments: str,
            number: int = 0,
            allocation: Allocation | None = None,
            phases: tuple[Phase, ...] = (),
            **fields: Any,
        ) -> RunSpec:
            spec = build_spec({"number": number}, allocation=allocation)
            directory = tmp_path / str(number)
            directory.mkdir(exist_ok=True)
            runner.start(spec, python_launch(directory, code, *arguments, **fields), phases=phases)
            return spec

        return start

    def test_a_run_completes_with_its_usage(self, runner: Runner, start: Callable[..., RunSpec]) -> None:
        spec = start("import time; time.sleep(0.3)")
        assert spec in runner.running
        (run,) = poll_all(runner)
        assert (run.spec, run.state, run.exit_code, run.reason) == (spec, State.COMPLETED, 0, "")
        assert run.usage is not None
        assert run.usage.elapsed_s >= 0.3
        assert run.started_at is not None
        assert run.ended_at is not None
        assert run.started_at.tzinfo is not None
        assert run.started_at <= run.ended_at  # a scheduler may count whole seconds
        assert not runner.running

    def test_a_failure_keeps_exit_code_and_log(self, runner: Runner, start: Callable[..., RunSpec]) -> None:
        start("import sys; print('so far so good'); sys.stderr.write('disk on fire'); sys.exit(3)")
        (run,) = poll_all(runner)
        assert (run.state, run.exit_code) == (State.FAILED, 3)
        assert "3" in run.reason
        assert "so far so good" in run.log_tail
        assert "disk on fire" in run.log_tail

    def test_a_command_that_does_not_exist_is_a_failed_run(self, runner: Runner, tmp_path: Path) -> None:
        launch = Launch(argv=("no-such-command",), working_directory=str(tmp_path), run_directory=str(tmp_path / "run"))
        runner.start(build_spec({}), launch)
        (run,) = poll_all(runner)
        assert run.state is State.FAILED
        assert "no-such-command" in run.reason + run.log_tail

    def test_each_run_is_reported_once(self, runner: Runner, start: Callable[..., RunSpec]) -> None:
        reported: list[Run] = []
        for number in range(5):
            while not runner.has_capacity(build_spec({"number": number})):
                reported += runner.poll(1.0)
            start("", number=number)
        reported += poll_all(runner)
        assert sorted(run.spec.parameters["number"] for run in reported) == [0, 1, 2, 3, 4]
        assert runner.poll(0) == []

    def test_a_run_past_its_limit_times_out(self, runner: Runner, start: Callable[..., RunSpec]) -> None:
        start("import time; time.sleep(600)", time_limit_s=0.5)
        (run,) = poll_all(runner)
        assert run.state is State.TIMED_OUT
        assert run.usage is not None
        assert run.usage.elapsed_s == pytest.approx(0.5, rel=0.01)

    def test_what_can_never_run_is_refused(self, runner: Runner, start: Callable[..., RunSpec]) -> None:
        allocation = Allocation(cores=10**6)
        assert not runner.fits(build_spec({"number": 0}, allocation=allocation))
        with pytest.raises(RunnerError, match="1000000 cores"):
            start("", allocation=allocation)
        assert runner.running == ()

    def test_phases_are_captured(self, runner: Runner, start: Callable[..., RunSpec]) -> None:
        code = (
            "import json; print('epoch 1.5 s'); print('epoch 2.5 s'); json.dump({'a': {'b': 7}}, open('out.json', 'w'))"
        )
        phases = (
            Phase(name="epoch", pattern=r"epoch ([\d.]+) s"),
            Phase(name="load", file="out.json", key="a.b"),
            Phase(name="gone", pattern="never printed"),
        )
        start(code, phases=phases)
        (run,) = poll_all(runner)
        assert run.state is State.COMPLETED
        assert run.phases == {"epoch": 2.0, "load": 7.0}
        assert "gone" in run.reason

    def test_stop_kills_the_whole_tree(self, runner: Runner, start: Callable[..., RunSpec], tmp_path: Path) -> None:
        code = (
            "import subprocess, sys, time; "
            "children = [subprocess.Popen(['sleep', '600'], start_new_session=new) for new in (False, True)]; "
            "print(*(child.pid for child in children), flush=True); time.sleep(600)"
        )
        start(code)
        runner.poll(0)
        output = tmp_path / "0" / "stdout.log"
        wait_for(lambda: output.exists() and output.read_text().endswith("\n"))
        runner.stop()
        runner.stop()
        assert runner.running == ()
        assert runner.poll(0) == []
        for pid in map(int, output.read_text().split()):
            wait_for(lambda pid=pid: not is_running(pid))  # type: ignore[misc]

    @pytest.mark.parametrize(
        "word",
        ["", " ", "a b", "'", '"', "$(touch pwned)", "`id`", "a\nb", "\\", "ünï ☃", "-n", "*", "{x}", ";ls", "\t"],
    )
    def test_unusual_arguments_are_passed_unchanged(
        self, runner: Runner, start: Callable[..., RunSpec], tmp_path: Path, word: str
    ) -> None:
        code = "import json, os, sys; print(json.dumps([*sys.argv[1:], os.environ['ODD']]))"
        start(code, word, environment={"ODD": word})
        (run,) = poll_all(runner)
        assert run.state is State.COMPLETED
        assert json.loads((tmp_path / "0" / "stdout.log").read_text()) == [word, word]


def build_spec(parameters: Mapping[str, int], *, allocation: Allocation | None = None) -> RunSpec:
    return RunSpec(app="contract", parameters=parameters, allocation=allocation or Allocation())


def is_running(pid: int) -> bool:
    """Return whether there is such a process that is not a zombie."""
    with contextlib.suppress(OSError):
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes() and os.getpgid(pid) > 0
    return False
