"""Starts the members of a distributed training on nodes, gives them jobs, and listens to the first worker."""

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
from typing import IO, Any

from foretell.core.errors import RunnerError
from foretell.distributed.links import Links
from foretell.distributed.training_jobs import Trained, TrainingJob

_PORTS = range(20_000, 30_000)  # below those that systems give out themselves
_PATIENCE_S = 120.0
_SOON_S = 5.0  # after a process has ended, so has what it says
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # one core a member


class TrainingGroup:
    """A process on each node that makes a copy of itself for each job.

    **One at a time.** :meth:`start` is followed by :meth:`finish`, whatever happens in between.
    **Whole or not at all.** A member that fails ends the job for all; the next job finds new members.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._members: list[_MemberProcess] = []
        self._jobs = 0

    def start(self, job: TrainingJob) -> int:
        """Begin, and tell the process of the first worker.

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
            member.give({**order, "interface": self._links.nodes[rank].interface})
        return int(self._members[0].wait_for("started")["pid"])

    def finish(self, job: TrainingJob) -> Trained:
        """Wait for the end, and give what the first worker tells.

        Raises:
            RunnerError: A member failed, or does not answer.
        """
        try:
            members = self._members[: job.setting.workers + job.setting.servers]
            used = sum(member.wait_for("used")["cpu_s"] for member in members)
            told = members[0].wait_for("trained")
            for member in members:
                member.wait_for("ended")
        except RunnerError:
            self.close()
            raise
        seconds = told["began_s"][-1] - told["began_s"][0]
        return Trained(
            alone_s=told["alone_s"],
            began_s=tuple(told["began_s"]),
            phases_s=tuple(told["phases_s"]),
            others=max(0.0, (told["busy_s"] - used) / seconds),
            stolen=told["stolen_s"] / seconds,
        )

    def close(self) -> None:
        """End all members."""
        for member in self._members:
            member.kill()
        self._members.clear()

    def _grow(self, count: int) -> None:
        if count > len(self._links.nodes):
            raise RunnerError(f"{count} workers and servers need as many nodes; there are {len(self._links.nodes)}")
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
    """Another one for each job, and for each who measures on this machine."""
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
    """A node's process, and what it says."""

    def __init__(self, prefix: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "foretell.distributed.training_member"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_THREADS},
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._said: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._complaints: deque[str] = deque(maxlen=1)  # the last tells most
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._listeners = (
            threading.Thread(target=_listen, args=(self._process.stdout, self._said), daemon=True),
            threading.Thread(target=_overhear, args=(self._process.stderr, self._complaints), daemon=True),
        )
        for listener in self._listeners:
            listener.start()

    def give(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as exc:
            raise RunnerError("a member of the training has ended; try again") from exc

    def wait_for(self, event: str) -> Mapping[str, Any]:
        """The next word of a kind.

        Raises:
            RunnerError: It says that it failed, or nothing at all.
        """
        while True:
            try:
                said = self._said.get(timeout=_PATIENCE_S)
            except queue.Empty:
                raise RunnerError(f"a member of the training said nothing for {_PATIENCE_S:g} s") from None
            if said is None:
                self._listeners[1].join(_SOON_S)
                why = f": {self._complaints[0]}" if self._complaints else "; is PyTorch installed for this Python?"
                raise RunnerError(f"a member of the training ended early{why}")
            if said["event"] == "failed":
                raise RunnerError(f"a member of the training failed: {said['why']}")
            if said["event"] == event:
                return said
            if said["event"] == "ended":
                raise RunnerError(f"a member of the training was ended ({said['code']}); is there memory enough?")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for listener in self._listeners:
            listener.join(_SOON_S)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


def _listen(stream: IO[str], said: "queue.Queue[Mapping[str, Any] | None]") -> None:
    with stream:
        for line in stream:
            with suppress(json.JSONDecodeError):  # a model's own code may print
                said.put(json.loads(line))
    said.put(None)


def _overhear(stream: IO[str], complaints: "deque[str]") -> None:
    with stream:
        complaints.extend(line.strip() for line in stream if line.strip())
