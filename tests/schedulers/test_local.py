"""The local runner: the common contract, and its own behaviour."""

import dataclasses
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.runners import RunnerContract, build_spec, is_running, poll_all, python_launch, wait_for

from foretell.core.errors import RunnerError, RunTakenError
from foretell.core.run import Allocation, Launch, Run, RunSpec, State
from foretell.measure.machine import kill_leftovers
from foretell.measure.run_lock import take_run_lock
from foretell.schedulers._base import Runner
from foretell.schedulers.local import LocalRunner, read_finished

MEGABYTE = 2**20


class TestLocalRunner(RunnerContract):
    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        with LocalRunner() as runner:
            yield runner

    def test_runs_never_share_cores(self, runner: Runner, start: Callable[..., RunSpec], tmp_path: Path) -> None:
        code = (
            "import json, os, time; begin = time.time(); time.sleep(0.2); "
            "print(json.dumps([begin, time.time(), sorted(os.sched_getaffinity(0))]))"
        )
        for number in range(6):
            while not runner.has_capacity(build_spec({"number": number})):
                runner.poll(1.0)
            start(code, number=number)
        poll_all(runner)
        spans = [json.loads((tmp_path / str(number) / "stdout.log").read_text()) for number in range(6)]
        for number, (begin, end, cpus) in enumerate(spans):
            assert len(cpus) == 1
            for other_begin, other_end, other_cpus in spans[:number]:
                apart_in_time = other_end <= begin or end <= other_begin
                assert apart_in_time or not set(cpus) & set(other_cpus)


@pytest.fixture
def runner() -> Iterator[LocalRunner]:
    with LocalRunner() as runner:
        yield runner


SPEC = build_spec({"number": 1})


def run_python(runner: Runner, directory: Path, code: str, *, spec: RunSpec = SPEC, **fields: Any) -> Run:
    runner.start(spec, python_launch(directory, code, **fields))
    (run,) = poll_all(runner)
    return run


class TestRecord:
    def test_is_written_to_the_run_directory(self, runner: Runner, tmp_path: Path) -> None:
        run = run_python(runner, tmp_path, "print(1)")
        assert read_finished(tmp_path) == run

    def test_of_an_older_attempt_is_removed_when_a_new_one_starts(self, runner: Runner, tmp_path: Path) -> None:
        run_python(runner, tmp_path, "print('old')")
        runner.start(SPEC, python_launch(tmp_path, "import time; time.sleep(600)"))
        assert read_finished(tmp_path) is None
        assert (tmp_path / "stdout.log").read_text() == ""
        runner.stop()
        assert read_finished(tmp_path) is None

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", "null", '{"spec": 3}', '{"spec": {}, "state": "odd"}', "\xff"]
    )
    def test_of_another_program_is_not_read(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "run.json").write_text(text, encoding="latin-1")
        assert read_finished(tmp_path) is None

    def test_is_absent_without_a_folder(self, tmp_path: Path) -> None:
        assert read_finished(tmp_path / "nowhere") is None


class TestStates:
    def test_over_its_memory(self, runner: Runner, tmp_path: Path) -> None:
        spec = dataclasses.replace(SPEC, allocation=Allocation(memory_bytes=80 * MEGABYTE))
        run = run_python(runner, tmp_path, "x = b'1' * (300 << 20); import time; time.sleep(600)", spec=spec)
        assert run.state is State.OUT_OF_MEMORY
        assert run.usage.peak_memory_bytes > 80 * MEGABYTE
        assert "80 MB" in run.reason

    def test_killed_by_a_signal(self, runner: Runner, tmp_path: Path) -> None:
        run = run_python(runner, tmp_path, "import os; os.kill(os.getpid(), 11)")
        assert (run.state, run.exit_code) == (State.FAILED, -signal.SIGSEGV)
        assert "SIGSEGV" in run.reason

    def test_walltime_of_the_allocation_is_a_limit_too(self, runner: Runner, tmp_path: Path) -> None:
        spec = dataclasses.replace(SPEC, allocation=Allocation(walltime_s=0.3))
        run = run_python(runner, tmp_path, "import time; time.sleep(600)", spec=spec, time_limit_s=500.0)
        assert (run.state, run.usage.elapsed_s) == (State.TIMED_OUT, 0.3)

    def test_log_tail_is_the_end_only(self, runner: Runner, tmp_path: Path) -> None:
        run = run_python(runner, tmp_path, "[print('line', i) for i in range(100_000)]; print('\\0'); 1/0")
        assert "line 99999" in run.log_tail
        assert "ZeroDivisionError" in run.log_tail
        assert "\0" not in run.log_tail
        assert len(run.log_tail.splitlines()) < 90

    def test_standard_input_is_empty(self, runner: Runner, tmp_path: Path) -> None:
        run = run_python(runner, tmp_path, "import sys; assert sys.stdin.read() == ''")
        assert run.state is State.COMPLETED


class TestStartErrors:
    def start(self, runner: Runner, tmp_path: Path, argv: tuple[str, ...], directory: Path | None = None) -> str | None:
        launch = Launch(argv=argv, working_directory=str(directory or tmp_path), run_directory=str(tmp_path / "run"))
        runner.start(SPEC, launch)
        (run,) = poll_all(runner)
        assert (run.state, run.usage, run.exit_code) == (State.FAILED, None, None)
        return run.reason

    def test_not_executable(self, runner: Runner, tmp_path: Path) -> None:
        program = tmp_path / "program"
        program.write_text("#!/bin/sh\n")
        assert "chmod +x" in self.start(runner, tmp_path, (str(program),))

    def test_no_program(self, runner: Runner, tmp_path: Path) -> None:
        program = tmp_path / "program"
        program.write_bytes(b"\x01\x02")
        program.chmod(stat.S_IRWXU)
        assert "#!" in self.start(runner, tmp_path, (str(program),))

    def test_missing_working_directory(self, runner: Runner, tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        assert str(missing) in self.start(runner, tmp_path, ("true",), directory=missing)

    def test_nul_in_an_argument(self, runner: Runner, tmp_path: Path) -> None:
        assert "NUL" in self.start(runner, tmp_path, ("echo", "a\0b"))

    def test_too_long_an_argument(self, runner: Runner, tmp_path: Path) -> None:
        assert "too long" in self.start(runner, tmp_path, ("echo", "x" * 10_000_000))

    def test_empty_command(self, runner: Runner, tmp_path: Path) -> None:
        assert "no command" in self.start(runner, tmp_path, ())


class TestSetupAndCleanup:
    def test_are_not_measured(self, runner: Runner, tmp_path: Path) -> None:
        run = run_python(runner, tmp_path, "", setup=(("sleep", "0.5"),), cleanup=(("sleep", "0.5"),))
        assert run.state is State.COMPLETED
        assert (run.ended_at - run.started_at).total_seconds() > 1.0
        assert run.usage.elapsed_s < 0.5

    def test_failing_setup_fails_the_run_and_still_cleans_up(self, runner: Runner, tmp_path: Path) -> None:
        setup = (("sh", "-c", "echo no luck; exit 4"), ("touch", "second"))
        run = run_python(runner, tmp_path, "open('ran', 'w')", setup=setup, cleanup=(("touch", "cleaned"),))
        assert (run.state, run.usage) == (State.FAILED, None)
        assert "exit code 4" in run.reason
        assert "no luck" in run.log_tail
        assert (tmp_path / "cleaned").exists()
        assert not (tmp_path / "ran").exists()
        assert not (tmp_path / "second").exists()

    def test_failing_cleanup_is_reported(self, runner: Runner, tmp_path: Path) -> None:
        run = run_python(runner, tmp_path, "", cleanup=(("false",), ("no-such-command",)))
        assert run.state is State.COMPLETED
        assert "cleanup: false ended with exit code 1" in run.reason
        assert "no-such-command" in run.reason

    def test_cleanup_runs_after_stop(self, runner: Runner, tmp_path: Path) -> None:
        runner.start(
            SPEC,
            python_launch(
                tmp_path, "print(1, flush=True); import time; time.sleep(600)", cleanup=(("touch", "cleaned"),)
            ),
        )
        wait_for(lambda: (tmp_path / "stdout.log").read_text() == "1\n")
        runner.stop()
        assert (tmp_path / "cleaned").exists()

    def test_stop_during_setup_never_starts_the_command(self, runner: Runner, tmp_path: Path) -> None:
        launch = python_launch(tmp_path, "open('ran', 'w')", setup=(("sleep", "600"),))
        runner.start(SPEC, launch)
        wait_for((tmp_path / "setup.log").exists)
        runner.stop()
        assert not (tmp_path / "ran").exists()


class TestRunEnvironment:
    def test_environment(self, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OUTER", "1")
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        run_python(runner, tmp_path, code, environment={"INNER": "2"})
        seen = json.loads((tmp_path / "stdout.log").read_text())
        assert (seen["OUTER"], seen["INNER"]) == ("1", "2")
        assert seen["FORETELL_RUN_ID"] == SPEC.id
        assert seen["FORETELL_RUN_DIR"] == str(tmp_path)

    def test_only_the_cpus_given_to_the_runner(self, tmp_path: Path) -> None:
        cpu = max(os.sched_getaffinity(0))
        with LocalRunner(cpus={cpu}) as runner:
            run_python(runner, tmp_path, "import os; print(os.sched_getaffinity(0))")
        assert (tmp_path / "stdout.log").read_text() == f"{{{cpu}}}\n"

    def test_cpus_outside_the_affinity_are_refused(self) -> None:
        with pytest.raises(RunnerError, match="5000"):
            LocalRunner(cpus={5000})

    def test_starting_does_not_change_our_own_affinity(self, runner: Runner, tmp_path: Path) -> None:
        before = os.sched_getaffinity(0)
        run_python(runner, tmp_path, "")
        assert os.sched_getaffinity(0) == before


class TestAfterTheRun:
    def test_no_process_is_left(self, runner: Runner, tmp_path: Path) -> None:
        code = (
            "import subprocess; print(*(subprocess.Popen(['sleep', '600'], start_new_session=new).pid "
            "for new in (False, True)))"
        )
        run = run_python(runner, tmp_path, code)
        assert run.state is State.COMPLETED
        left = [int(pid) for pid in (tmp_path / "stdout.log").read_text().split()]
        wait_for(lambda: not any(map(is_running, left)))

    def test_processes_of_a_killed_foretell_are_found_and_killed(self, tmp_path: Path) -> None:
        code = f"""
import time
from foretell.schedulers.local import LocalRunner
from tests.contracts.runners import build_spec, python_launch
from pathlib import Path
launch = python_launch(Path({str(tmp_path)!r}), "print(1, flush=True); import time; time.sleep(600)")
LocalRunner().start(build_spec({{"number": 77}}), launch)
time.sleep(600)
"""
        with subprocess.Popen([sys.executable, "-c", code]) as foretell:
            wait_for(lambda: (tmp_path / "stdout.log").exists() and (tmp_path / "stdout.log").read_text() == "1\n")
            foretell.kill()
        run_id = build_spec({"number": 77}).id
        assert kill_leftovers(run_id, run_directory=tmp_path) == 1
        assert read_finished(tmp_path) is None

    def test_machine_facts_are_recorded(self, runner: Runner, tmp_path: Path) -> None:
        run = run_python(runner, tmp_path, "import time; time.sleep(0.4)")
        assert run.machine.cores == len(os.sched_getaffinity(0))
        assert run.machine.load is not None
        assert 0 <= run.machine.load <= run.machine.cores + 0.5


class TestCapacity:
    def test_waits_for_cores(self, tmp_path: Path) -> None:
        with LocalRunner(cpus={min(os.sched_getaffinity(0))}) as runner:
            other = build_spec({"number": 2})
            runner.start(SPEC, python_launch(tmp_path, "import time; time.sleep(600)"))
            assert runner.fits(other)
            assert not runner.has_capacity(other)
            with pytest.raises(RunnerError, match="no capacity"):
                runner.start(other, python_launch(tmp_path / "2", ""))
            runner.stop()
            assert runner.has_capacity(other)

    def test_waits_for_memory(self, runner: Runner, tmp_path: Path) -> None:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        big, small = (
            build_spec({"number": number}, allocation=Allocation(memory_bytes=int(total * share)))
            for number, share in ((1, 0.7), (2, 0.4))
        )
        runner.start(big, python_launch(tmp_path, "import time; time.sleep(600)"))
        assert runner.fits(small)
        assert not runner.has_capacity(small)

    @pytest.mark.parametrize(
        ("allocation", "message"),
        [
            (Allocation(nodes=2), "2 nodes"),
            (Allocation(cores=0), "0 cores"),
            (Allocation(gpus=64), "64 GPUs"),
            (Allocation(memory_bytes=2**60), "of memory"),
        ],
    )
    def test_a_run_that_cannot_fit_is_refused_with_a_reason(
        self, runner: Runner, tmp_path: Path, allocation: Any, message: str
    ) -> None:
        spec = build_spec({}, allocation=allocation)
        assert not runner.fits(spec)
        with pytest.raises(RunnerError, match=message):
            runner.start(spec, python_launch(tmp_path, ""))


class TestFolders:
    def test_a_file_in_its_place(self, runner: Runner, tmp_path: Path) -> None:
        (tmp_path / "run").write_text("")
        with pytest.raises(RunnerError, match=r"run'.*move away"):
            runner.start(SPEC, python_launch(tmp_path / "run", ""))
        assert runner.running == ()

    @pytest.mark.parametrize("name", ["/proc/nowhere", "/sys/run", "a\0b", "x" * 300])
    def test_a_folder_that_cannot_be_created(self, runner: Runner, tmp_path: Path, name: Any) -> None:
        launch = Launch(argv=("true",), run_directory=str(tmp_path / name))
        with pytest.raises(RunnerError, match=r"cannot write .*; (choose|make)"):
            runner.start(SPEC, launch)
        assert runner.has_capacity(SPEC)

    def test_full_disk(self, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("foretell.schedulers.run_files.os.fsync", fail)
        runner.start(SPEC, python_launch(tmp_path, ""))
        wait_for(lambda: not any(thread.name == f"run {SPEC.id}" for thread in threading.enumerate()))
        (run,) = runner.poll(0)  # the measurement is not lost
        assert run.state is State.COMPLETED
        with pytest.raises(RunnerError, match=r"run\.json.*free some space"):
            runner.poll(0)

    def test_a_folder_used_by_another_process(self, runner: Runner, tmp_path: Path) -> None:
        lock = take_run_lock(tmp_path)
        (tmp_path / "stdout.log").write_text("so far")
        with pytest.raises(RunTakenError, match="another process makes run"):
            runner.start(SPEC, python_launch(tmp_path, ""))
        assert (tmp_path / "stdout.log").read_text() == "so far"
        assert runner.running == ()
        lock.free()
        assert run_python(runner, tmp_path, "").state is State.COMPLETED

    def test_relative_run_directory(self, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        runner.start(SPEC, Launch(argv=(sys.executable, "-c", ""), run_directory="runs/1"))
        (run,) = poll_all(runner)
        assert read_finished(tmp_path / "runs" / "1") == run
