"""Starts a user's command, waits until its first training step is recorded, and ends it."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

import psutil

from foretell.core.devices import Device
from foretell.core.errors import WorkloadError
from foretell.workloads.scripts import script_events
from foretell.workloads.scripts.answered_gpu import build_answered, save_answered
from foretell.workloads.scripts.command_checks import check_command
from foretell.workloads.scripts.script_events import TimingRequest
from foretell.workloads.scripts.written_files import remove_temporary

POLL_S = 0.05
KILL_S = 3.0  # that a process may take to end when it is asked to
LINES = 200  # of the output that are kept
_LAST = frozenset({"end", "failure", "processes"})  # events after which nothing of the command is of use
_BOOTSTRAP = Path(__file__).parent / "bootstrap"


@dataclass(slots=True, kw_only=True)
class CommandOutcome:
    """What came of a command."""

    code: int | None = None  # None: it was ended by Foretell
    result: str | None = None  # the recorded step, as written by the script's process
    events: list[dict[str, Any]] = field(default_factory=list)
    output: tuple[str, ...] = ()  # its last lines
    seconds: float = 0.0
    place: str = ""  # where it was when the time was over


def run_command(
    command: Sequence[str],
    *,
    timeout_s: float,
    on_progress: Callable[[str], None] | None = None,
    device: Device | None = None,
    memory: bool = False,
    timing: TimingRequest | None = None,
) -> CommandOutcome:
    """Run a command until its first training step has ended, in this folder and environment; with memory, the second.

    PyTorch answers as on a machine with this device, by default an H100. With ``timing``, it runs as it is on this
    machine until so many of its steps were timed.
    No process of it is left when this returns, or raises.

    Raises:
        NotFoundError: Its program or its script does not exist.
        WorkloadError: It cannot be started, or asks for several processes.
    """
    check_command(command)
    with _raising_signals(), tempfile.TemporaryDirectory(prefix="foretell-script-") as folder:
        save_answered(build_answered(device), Path(folder))
        if memory:
            script_events.ask_for_memory(Path(folder))
        if timing is not None:
            script_events.ask_for_timing(Path(folder), timing)
        return _Run(command, Path(folder), timeout_s=timeout_s, on_progress=on_progress or (lambda _: None)).wait()


class _Run:
    def __init__(
        self, command: Sequence[str], folder: Path, *, timeout_s: float, on_progress: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        self._lines: deque[str] = deque(maxlen=LINES)
        self._children: dict[int, psutil.Process] = {}
        self._kinds: set[str] = set()
        self._size = 0  # of the events that these kinds are of
        self._process = self._start(command)
        self._reader = threading.Thread(target=_keep_lines, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        try:
            return subprocess.Popen(
                list(command),
                env=build_environment(os.environ, self._folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as exc:
            raise WorkloadError(f"{command[0]} cannot be started: {exc.strerror}") from exc

    def wait(self) -> CommandOutcome:
        """Wait for the step, or for the end of the command."""
        begin = time.monotonic()
        outcome = CommandOutcome()
        try:
            outcome.code = self._watch(begin, outcome)
        finally:
            self._end_processes()
            self._close()
        outcome.seconds = time.monotonic() - begin
        outcome.events = script_events.read_events(self._folder)
        remove_temporary(outcome.events)
        outcome.output = tuple(self._lines)
        outcome.result = script_events.read_result(self._folder)
        return outcome

    def _close(self) -> None:
        self._reader.join(timeout=KILL_S)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def _watch(self, begin: float, outcome: CommandOutcome) -> int | None:
        shown = 0.0
        recorded: float | None = None
        while True:
            code = self._process.poll()
            if code is not None:
                return code
            now = time.monotonic()
            if recorded is None and (self._folder / script_events.RESULT).exists():
                recorded = now
            if recorded is not None and now - recorded > script_events.END_S:
                return None
            if self._find_kinds() & _LAST:
                return None
            if recorded is None and now - begin > self._timeout_s:
                outcome.place = self._ask_place()
                return None
            if now - shown > 1.0:
                shown = now
                self._note_children()
                self._on_progress(self._describe(now - begin))
            time.sleep(POLL_S)

    def _find_kinds(self) -> set[str]:
        """The kinds of the events so far."""
        try:
            size = (self._folder / script_events.EVENTS).stat().st_size
        except OSError:
            return self._kinds
        if size != self._size:
            self._size = size
            self._kinds = {event["kind"] for event in script_events.read_events(self._folder)}
        return self._kinds

    def _describe(self, seconds: float) -> str:
        state = "waiting for its first training step" if "torch" in self._find_kinds() else "waiting for PyTorch"
        return f"The script has run for {seconds:.0f} s; {state}…"

    def _ask_place(self) -> str:
        """The line of the script that runs now."""
        events = script_events.read_events(self._folder)
        self._note_children()
        known = {self._process.pid, *self._children}
        for pid in [event["pid"] for event in events if event["kind"] in ("python", "torch")][::-1]:
            if pid not in known:  # only a process of the command is asked
                continue
            path = self._folder / f"stack.{pid}"
            with contextlib.suppress(OSError, ValueError):
                os.kill(pid, script_events.STACK_SIGNAL)
                time.sleep(0.5)
                place = script_events.find_stack_place(path.read_text(encoding="utf-8", errors="replace"))
                if place:
                    return place
        return ""

    # Ends

    def _note_children(self) -> None:
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                self._children.setdefault(child.pid, child)

    def _end_processes(self) -> None:
        """End the command and every process that it started, first with a request."""
        self._note_children()
        left = self._find_left()
        ended = {event["pid"] for event in script_events.read_events(self._folder) if event["kind"] == "end"}
        for process in left:
            with contextlib.suppress(psutil.Error):
                if process.pid in ended:  # it only waits; a handler of the script's own must not run
                    process.kill()
                else:
                    process.terminate()
        _, alive = psutil.wait_procs(left, timeout=KILL_S)
        for process in {each.pid: each for each in (*alive, *self._find_left())}.values():
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=KILL_S)

    def _find_left(self) -> list[psutil.Process]:
        """Processes of the command that are alive: its descendants, and those that carry its variable."""
        found: dict[int, psutil.Process] = {}
        with contextlib.suppress(psutil.Error):
            found[self._process.pid] = psutil.Process(self._process.pid)  # first, as it starts others
        found |= {pid: each for pid, each in self._children.items() if _is_alive(each)}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.uids().real == os.getuid() and self._is_marked(process):
                    found[process.pid] = process
        return [each for each in found.values() if each.pid != os.getpid()]

    def _is_marked(self, process: psutil.Process) -> bool:
        return process.environ().get(script_events.FOLDER) == str(self._folder)


@contextlib.contextmanager
def _raising_signals() -> Iterator[None]:
    """Let a request to end, or a closed terminal, end the command as well: it has a session of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    ours = [each for each, handler in previous.items() if handler is signal.SIG_DFL]  # nohup ignores SIGHUP
    for each in ours:
        signal.signal(each, _exit)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def build_environment(own: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The user's environment, with the way into its Python processes."""
    path = os.pathsep.join([str(_BOOTSTRAP), *filter(None, [own.get("PYTHONPATH")])])
    return {
        **own,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        script_events.FOLDER: str(folder),
        script_events.PARENT: str(os.getpid()),
    }


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _keep_lines(stream: IO[str] | None, lines: deque[str]) -> None:
    assert stream is not None
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            lines.append(line.rstrip()[: script_events.LENGTH])
