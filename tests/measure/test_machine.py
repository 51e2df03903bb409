"""Facts about the machine, compared with other sources of the system."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.core.run import Owner
from foretell.core.serialization import from_record, to_record
from foretell.measure import machine as machine_module
from foretell.measure.machine import (
    build_owner,
    current_load,
    detect_machine,
    group_cpus,
    is_alive,
    kill_leftovers,
    read_busy_s,
)


def test_machine_is_detected() -> None:
    machine = detect_machine()
    assert machine.hostname == socket.gethostname()
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.cpu_model


def test_machine_without_a_proc_still_has_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "find_text", lambda path: None)
    assert detect_machine().cores == len(os.sched_getaffinity(0))


def test_load_includes_other_processes() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burner:
        time.sleep(0.1)
        load = current_load()
        burner.kill()
    assert 0.2 < load <= len(os.sched_getaffinity(0)) + 0.1


def test_busy_time_only_grows() -> None:
    before = read_busy_s()
    assert 0 < before <= read_busy_s()


def test_cpus_are_grouped_by_core(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {0: b"0,4\n", 4: b"0,4\n", 1: b"1-2\n", 2: b"1-2\n", 3: None}
    monkeypatch.setattr(machine_module, "find_text", lambda path: lists[int(path.split("/cpu")[2].split("/")[0])])
    assert group_cpus([0, 1, 2, 3, 4]) == [(0, 4), (1, 2), (3,)]
    assert group_cpus([0, 1, 2]) == [(0,), (1, 2)]


class TestOwner:
    def test_this_process_is_alive(self) -> None:
        assert build_owner() == build_owner()
        assert is_alive(build_owner()) is True

    def test_survives_being_stored(self) -> None:
        assert is_alive(from_record(Owner, to_record(build_owner()))) is True

    @pytest.mark.parametrize(
        "change",
        [{"boot_id": "another"}, {"started_at": 1.0}, {"pid": 2**22 + 1}],
        ids=lambda change: next(iter(change)),
    )
    def test_another_boot_or_a_reused_pid_is_dead(self, change: Any) -> None:
        assert is_alive(dataclasses.replace(build_owner(), **change)) is False

    def test_another_host_is_unknown(self) -> None:
        assert is_alive(dataclasses.replace(build_owner(), hostname="elsewhere")) is None

    def test_a_process_that_ended_is_dead_even_before_it_is_reaped(self) -> None:
        code = (
            "import json; from foretell.core.serialization import to_record; from foretell.measure.machine import *\n"
        )
        code += "print(json.dumps(to_record(build_owner())), flush=True); input()"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        owner = from_record(Owner, json.loads(child.stdout.readline()))
        assert owner.token != build_owner().token
        assert is_alive(owner) is True
        child.stdin.write("\n")
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(owner) is False
        child.wait()
        child.stdout.close()
        assert is_alive(owner) is False


RUN = uuid.uuid4().hex  # other tests on this machine have other ids


class TestLeftovers:
    def start(self, run_id: str, directory: str | Path = "/somewhere") -> subprocess.Popen[bytes]:
        environment = os.environ | {"FORETELL_RUN_ID": run_id, "FORETELL_RUN_DIR": str(directory)}
        process = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
        while not Path(f"/proc/{process.pid}/environ").read_bytes():  # for a moment after its start
            time.sleep(0.001)
        return process

    def test_only_processes_of_the_run_are_killed(self) -> None:
        mine, other = self.start(f"{RUN}-a-1"), self.start(f"{RUN}-a-10")
        assert kill_leftovers(f"{RUN}-a-1") == 1
        assert mine.wait(10) == -9
        assert other.poll() is None
        assert kill_leftovers(f"{RUN}-a-10") == 1
        other.wait(10)
        assert kill_leftovers(f"{RUN}-a-1") == 0

    def test_processes_of_another_folder_are_spared(self, tmp_path: Path) -> None:
        mine, other = self.start(f"{RUN}-b", tmp_path), self.start(f"{RUN}-b", tmp_path / "other")
        assert kill_leftovers(f"{RUN}-b", run_directory=tmp_path) == 1
        assert mine.wait(10) == -9
        assert other.poll() is None
        other.kill()
        other.wait(10)

    def test_our_own_processes_are_spared(self) -> None:
        code = "from foretell.measure.machine import kill_leftovers; print(kill_leftovers('test-c'))"
        environment = os.environ | {"FORETELL_RUN_ID": "test-c"}
        answer = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert answer.stdout == "0\n"


@given(st.sets(st.integers(0, 200)))
def test_cpu_lists_are_read_back(cpus: Any) -> None:
    assert set(machine_module._parse_cpu_list(",".join(map(str, cpus)))) == cpus
