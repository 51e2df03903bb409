"""Campaigns that are killed, interrupted and shared: nothing is lost, nothing is made twice, nothing stays behind."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from foretell.apps import api
from foretell.core.run import State

pytestmark = pytest.mark.slow

# Starts `foretell WORDS` as a process of its own in a few milliseconds: by forking a Python that has imported it.
_NURSERY = """
import json, os, signal, sys
import rich.live
import foretell.campaigns.api, foretell.core.serialization, foretell.campaigns.render
from foretell.cli.main import main

for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(order["folder"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for name, number in (("/dev/null", 0), ("out.txt", 1), (f"err-{os.getpid()}.txt", 2)):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
        sys.argv = ["foretell", *order["words"]]
        main()
    print(pid, flush=True)
"""
_APP = """
name: campaign
shell: |
  echo "started $PARAM_i" >> "$PARAM_app_dir/diary.txt"
  sleep "0.$((100 + PARAM_i % 5 * 20))"
  echo "ended $PARAM_i" >> "$PARAM_app_dir/diary.txt"
parameters:
  i: {sd: {from: 100, to: LAST, step: 1}}
"""
_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Nursery:
    process: subprocess.Popen[str]

    def start(self, *words: str, folder: Path) -> int:
        return self._order({"words": words, "folder": str(folder)})

    def wait(self, pid: int) -> int:
        return self._order({"wait": pid})

    def _order(self, order: object) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-c", _NURSERY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin
        process.stdin.close()


def describe_campaign(folder: Path, runs: int) -> Path:
    file = folder / "foretell.yaml"
    file.write_text(_APP.replace("LAST", str(100 + runs - 1)))
    return file


def read_diary(folder: Path, word: str) -> Counter[int]:
    with suppress(FileNotFoundError):
        lines = [line.split() for line in (folder / "diary.txt").read_text().splitlines()]
        return Counter(int(line[1]) for line in lines if line[0] == word)
    return Counter()


def read_states(app: Path) -> dict[int, State]:
    return {int(run.spec.parameters["i"]): run.state for run in api.list_runs(app).runs}


def wait_until(happened: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + _PATIENCE_S
    while not happened():
        assert time.monotonic() < give_up_at, "it never happened"
        time.sleep(0.005)


def find_runs_left(folder: Path) -> Sequence[str]:
    mark = os.fsencode(f"PARAM_app_dir={folder}")
    left = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                left.append(f"{process.pid} {process.cmdline()}")
    return left


def kill(pid: int, *, with_runs: bool) -> None:
    runs = psutil.Process(pid).children(recursive=True) if with_runs else []
    os.kill(pid, signal.SIGKILL)
    for process in runs:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.slow
def test_killed_twenty_times_none_is_lost_and_none_made_twice(nursery: Nursery, tmp_path: Path) -> None:
    app, chance = describe_campaign(tmp_path, 40), random.Random(20)
    starts_when_stored: dict[int, int] = {}
    for attempt in range(20):
        before = read_diary(tmp_path, "started").total()
        pid = nursery.start("generate", "--json", folder=tmp_path)
        if attempt % 5 == 0:
            time.sleep(chance.uniform(0, 0.5))  # at any moment: while it starts, plans or runs
        else:
            wait_until(lambda: read_diary(tmp_path, "started").total() > before)  # noqa: B023
            time.sleep(chance.uniform(0, 0.2))
        kill(pid, with_runs=attempt % 2 == 0)
        assert nursery.wait(pid) == -signal.SIGKILL, "the campaign was over too soon to be killed"
        starts = read_diary(tmp_path, "started")
        completed = {i for i, state in read_states(app).items() if state is State.COMPLETED}
        assert starts_when_stored.keys() <= completed
        starts_when_stored |= {i: starts[i] for i in completed - starts_when_stored.keys()}
    assert starts_when_stored, "no run was stored before the last kill: nothing was shown"
    assert nursery.wait(nursery.start("generate", "--json", folder=tmp_path)) == 0
    assert read_states(app) == dict.fromkeys(range(100, 140), State.COMPLETED)
    assert set(read_diary(tmp_path, "ended")) == set(range(100, 140))
    starts = read_diary(tmp_path, "started")
    assert {i: starts[i] for i in starts_when_stored} == starts_when_stored
    assert find_runs_left(tmp_path) == []


@pytest.mark.parametrize("campaigns", [2, 3])
def test_campaigns_side_by_side_share_the_work(campaigns: int, nursery: Nursery, tmp_path: Path) -> None:
    app = describe_campaign(tmp_path, 18)
    pids = [nursery.start("generate", "--json", folder=tmp_path) for _ in range(campaigns)]
    assert [nursery.wait(pid) for pid in pids] == [0] * campaigns
    everything = Counter(range(100, 118))
    assert read_diary(tmp_path, "started") == read_diary(tmp_path, "ended") == everything
    assert read_states(app) == dict.fromkeys(everything, State.COMPLETED)


def test_ctrl_c_says_how_to_go_on(nursery: Nursery, tmp_path: Path) -> None:
    app = describe_campaign(tmp_path, 30)
    pid = nursery.start("generate", folder=tmp_path)
    wait_until(lambda: read_diary(tmp_path, "ended").total() >= 3)
    os.kill(pid, signal.SIGINT)
    assert nursery.wait(pid) == 130
    assert "again" in (tmp_path / "out.txt").read_text()
    assert "Traceback" not in (tmp_path / f"err-{pid}.txt").read_text()
    states = read_states(app)
    assert set(states.values()) == {State.COMPLETED}  # no claim is left
    assert find_runs_left(tmp_path) == []
    assert nursery.wait(nursery.start("generate", "--json", folder=tmp_path)) == 0
    assert set(read_states(app)) == set(range(100, 130))
    starts = read_diary(tmp_path, "started")
    assert all(starts[i] == 1 for i in states)


def test_a_ctrl_c_before_the_first_run(nursery: Nursery, tmp_path: Path) -> None:
    app = describe_campaign(tmp_path, 4)
    pid = nursery.start("generate", folder=tmp_path)
    wait_until(lambda: (tmp_path / f"err-{pid}.txt").exists())
    time.sleep(0.1)
    os.kill(pid, signal.SIGINT)
    assert nursery.wait(pid) == 130
    assert "Traceback" not in (tmp_path / f"err-{pid}.txt").read_text()
    assert State.RUNNING not in read_states(app).values()
