"""Starts the members of a distributed training on nodes, sends them jobs and collects what they report."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from foretell.core.errors import RunnerError
from lab.links import Links
from lab.training_jobs import Trained, TrainingJob

_MEMBER = Path(__file__).with_name("training_member.py")
_PORTS = range(20_000, 30_000)  # below the ephemeral ones
_MESSAGE_TIMEOUT_S = 120.0
_JOIN_TIMEOUT_S = 5.0  # for the readers of a process that has ended
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # one core for each member


class TrainingGroup:
    """A process on each node that forks for each job.

    **One job at a time.** Call :meth:`finish` after each :meth:`start`, whatever happens in between.
    **Failures.** A member that fails ends the job for all; the next job starts new members.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._members: list[_MemberProcess] = []
        self._jobs = 0

    def start(self, job: TrainingJob) -> int:
        """Start a job and return the process id of its first worker.

        Raises:
            RunnerError: A member cannot be started.
        """
        try:
            return self._start(job)
        except RunnerError:
            self.close()
            raise

    def _start(self, job: TrainingJob) -> int:
        setting = job.setting
        count = setting.workers + setting.servers
        self._links.set_rate(setting.link_bytes_per_s)
        self._grow(count)
        self._jobs += 1
        first = self._links.nodes[0]
        for rank, member in enumerate(self._members[:count]):
            order = _build_order(job, rank, address=first.address, port=_choose_port(self._jobs))
            member.send({**order, "interface": self._links.nodes[rank].interface})
        return int(self._members[0].wait_for("started")["pid"])

    def finish(self, job: TrainingJob) -> Trained:
        """Wait for the end of the job and return what its first worker reports.

        Raises:
            RunnerError: A member failed, or does not respond.
        """
        try:
            members = self._members[: job.setting.workers + job.setting.servers]
            used = sum(member.wait_for("used")["cpu_s"] for member in members)
            report = members[0].wait_for("trained")
            for member in members:
                member.wait_for("ended")
        except RunnerError:
            self.close()
            raise
        seconds = report["began_s"][-1] - report["began_s"][0]
        return Trained(
            alone_s=report["alone_s"],
            began_s=tuple(report["began_s"]),
            phases_s=tuple(report["phases_s"]),
            others=max(0.0, (report["busy_s"] - used) / seconds),
            stolen=report["stolen_s"] / seconds,
        )

    def close(self) -> None:
        """End all members."""
        for member in self._members:
            member.kill()
        self._members.clear()

    def _grow(self, count: int) -> None:
        if count > len(self._links.nodes):
            raise RunnerError(f"{count} workers and servers need {count} nodes; there are {len(self._links.nodes)}")
        for node in self._links.nodes[len(self._members) : count]:
            self._members.append(_MemberProcess(node.prefix))
            self._members[-1].wait_for("ready")


@contextmanager
def open_group(links: Links) -> Iterator[TrainingGroup]:
    """A group whose members end with the block."""
    group = TrainingGroup(links)
    try:
        yield group
    finally:
        group.close()


def _choose_port(job: int) -> int:
    """A different one for each job and each process that measures on this machine."""
    return _PORTS[(97 * os.getpid() + job) % len(_PORTS)]


def _build_order(job: TrainingJob, rank: int, *, address: str, port: int) -> dict[str, Any]:
    setting = job.setting
    cores = sorted(os.sched_getaffinity(0))
    return {
        "network": asdict(job.network),
        "batch": job.batch,
        "strategy": setting.strategy.value,
        "workers": setting.workers,
        "servers": setting.servers,
        "synchronous": setting.synchronous,
        "seconds": job.seconds,
        "rank": rank,
        "address": address,
        "port": port,
        "core": cores[rank % len(cores)],
    }


class _MemberProcess:
    """A node's process and its messages."""

    def __init__(self, prefix: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-P", str(_MEMBER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_THREADS},
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._messages: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._last_error: deque[str] = deque(maxlen=1)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = (
            threading.Thread(target=_read_messages, args=(self._process.stdout, self._messages), daemon=True),
            threading.Thread(target=_read_last_line, args=(self._process.stderr, self._last_error), daemon=True),
        )
        for reader in self._readers:
            reader.start()

    def send(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as exc:
            raise RunnerError("a member of the training has ended; try again") from exc

    def wait_for(self, event: str) -> Mapping[str, Any]:
        """The next message of a kind.

        Raises:
            RunnerError: The member reports a failure, ends, or sends nothing.
        """
        while True:
            try:
                message = self._messages.get(timeout=_MESSAGE_TIMEOUT_S)
            except queue.Empty:
                raise RunnerError(f"a member of the training sent no message for {_MESSAGE_TIMEOUT_S:g} s") from None
            if message is None:
                self._readers[1].join(_JOIN_TIMEOUT_S)
                why = f": {self._last_error[0]}" if self._last_error else "; is PyTorch installed for this Python?"
                raise RunnerError(f"a member of the training ended early{why}")
            if message["event"] == "failed":
                raise RunnerError(f"a member of the training failed: {message['why']}")
            if message["event"] == event:
                return message
            if message["event"] == "ended":
                raise RunnerError(f"a member of the training was ended ({message['code']}); is there enough memory?")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for reader in self._readers:
            reader.join(_JOIN_TIMEOUT_S)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


def _read_messages(stream: IO[str], messages: "queue.Queue[Mapping[str, Any] | None]") -> None:
    with stream:
        for line in stream:
            with suppress(json.JSONDecodeError):  # a model's own code may print
                messages.put(json.loads(line))
    messages.put(None)


def _read_last_line(stream: IO[str], last: "deque[str]") -> None:
    with stream:
        last.extend(line.strip() for line in stream if line.strip())
