"""Runs Slurm's programs, turns their failures into errors, and parses the fields that they print."""

import logging
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import MappingProxyType

from foretell.core.errors import SchedulerError
from foretell.core.run import State, build_environment

# One format of times, whatever the user has set, and complete lists of an array's waiting elements: by default they
# end in "..." after 64 characters.
_FIXED_SETTINGS = {"SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0"}
# Variables by which users change what these programs print or do by default.
_USER_SETTINGS = re.compile(r"(SACCT|SQUEUE|SINFO|SBATCH|SCANCEL)_.*|SLURM_(CLUSTERS|JOB_NAME)")
_TIMEOUT_S = 120.0
_BLOCK = 1 << 20
_NO_CLUSTER = "Could not establish a configuration source"
_TRY_AGAIN = re.compile(
    r"unable to contact slurm|connection refused|communication (connection )?failure|socket timed out|"
    r"zero bytes were transmitted|temporarily (unable|unavailable)|problem talking to the database|"
    r"slurmdbd|unable to connect|transport endpoint|try again|connection timed out|backup controller",
    re.IGNORECASE,
)

_log = logging.getLogger(__name__)


def call(
    argv: Sequence[str], *, timeout_s: float = _TIMEOUT_S, environment: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return what the program printed; ``environment`` is added to that of this process.

    Raises:
        SchedulerError: if it is not found, fails, or does not respond in time; ``transient`` if waiting may help.
    """
    _log.debug("%s", shlex.join(argv))
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=_environment(argv[0]) | dict(environment),
            timeout=timeout_s,
            check=False,
            start_new_session=True,  # Ctrl-C must not interrupt a submission halfway
        )
    except FileNotFoundError:
        raise _missing(argv[0]) from None
    except subprocess.TimeoutExpired as exc:
        message = f"{argv[0]} did not respond within {timeout_s:.0f} s; Slurm may be overloaded, try again later"
        raise SchedulerError(message, transient=True) from exc
    if done.returncode:
        _log.debug("%s: exit code %d", argv[0], done.returncode)
        raise _build_error(argv[0], done.returncode, done.stderr)
    return done.stdout.decode("utf-8", errors="replace")


def call_all(*commands: Sequence[str]) -> list[str]:
    """Return what each program printed; they run at the same time.

    Raises:
        SchedulerError: as :func:`call`.
    """
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(call, commands))


@contextmanager
def stream(argv: Sequence[str]) -> Iterator[Iterator[bytes]]:
    """Yield what the program prints in blocks, for output that is too large for memory.

    Raises:
        SchedulerError: if it is not found, or fails.
    """
    with tempfile.TemporaryFile() as errors:  # not a pipe, which would fill up while stdout is read
        try:
            process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=_environment(argv[0])
            )
        except FileNotFoundError:
            raise _missing(argv[0]) from None
        with process:
            assert process.stdout is not None
            try:
                yield iter(partial(process.stdout.read, _BLOCK), b"")
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            errors.seek(0)
            raise _build_error(argv[0], process.returncode, errors.read())


def _environment(program: str) -> dict[str, str]:
    kept = {name: value for name, value in build_environment().items() if not _USER_SETTINGS.fullmatch(name)}
    return kept if program == "sbatch" else kept | _FIXED_SETTINGS  # jobs inherit the environment of sbatch


def _missing(program: str) -> SchedulerError:
    return SchedulerError(
        f"the program {program!r} was not found; log in to a machine of a Slurm cluster, or correct PATH"
    )


def _build_error(program: str, code: int, stderr: bytes) -> SchedulerError:
    text = stderr.decode("utf-8", errors="replace")
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in text.splitlines() if line.strip()]
    message = "; ".join(dict.fromkeys(lines)) or (
        f"exit code {code} without a message" if code >= 0 else f"killed by signal {-code}"
    )
    if _NO_CLUSTER in message:
        return SchedulerError(
            f"{program} finds no cluster: this machine has Slurm's programs, but no slurm.conf; "
            f"log in to a node of the cluster, or name its file in SLURM_CONF"
        )
    was_killed = code < 0  # perhaps after it had done its work
    return SchedulerError(f"{program}: {message}", transient=was_killed or _TRY_AGAIN.search(message) is not None)


# https://slurm.schedmd.com/job_state_codes.html, and those of sacct's manual
STATES = {
    "BOOT_FAIL": State.INTERRUPTED,
    "CANCELLED": State.CANCELLED,
    "COMPLETED": State.COMPLETED,
    "COMPLETING": State.RUNNING,
    "CONFIGURING": State.QUEUED,
    "DEADLINE": State.CANCELLED,
    "EXPEDITING": State.QUEUED,
    "FAILED": State.FAILED,
    "LAUNCH_FAILED": State.INTERRUPTED,
    "NODE_FAIL": State.INTERRUPTED,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "PENDING": State.QUEUED,
    "POWER_UP_NODE": State.QUEUED,
    "PREEMPTED": State.INTERRUPTED,
    "RECONFIG_FAIL": State.INTERRUPTED,
    "REQUEUED": State.QUEUED,
    "REQUEUE_FED": State.QUEUED,
    "REQUEUE_HOLD": State.QUEUED,
    "RESIZING": State.RUNNING,
    "RESV_DEL_HOLD": State.QUEUED,
    "REVOKED": State.CANCELLED,
    "RUNNING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "SPECIAL_EXIT": State.QUEUED,
    "STAGE_OUT": State.RUNNING,
    "STOPPED": State.RUNNING,
    "SUSPENDED": State.RUNNING,
    "TIMEOUT": State.TIMED_OUT,
    "UPDATE_DB": State.RUNNING,
}


def parse_state(word: str) -> State:
    """Return the state for Slurm's name of it, such as ``CANCELLED by 1000``.

    Raises:
        SchedulerError: if it is unknown.
    """
    try:
        return STATES[word.split()[0]]
    except (KeyError, IndexError):
        raise SchedulerError(
            f"Slurm reported an unknown state: {word!r}; known states: {', '.join(STATES)}. Please report it"
        ) from None


_CLOCK = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)(?:i?B)?([cn]?)", re.IGNORECASE)
_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
_UNKNOWN = {"", "Unknown", "None", "N/A", "(null)", "INVALID"}
_NO_LIMIT = {"UNLIMITED", "Partition_Limit", "INFINITE"}


def parse_clock(text: str) -> float | None:
    """Return the seconds of ``1-02:03:04``, ``02:03:04`` or ``03:04.567``; infinity for no limit.

    Raises:
        ValueError: if it has another format.
    """
    if text in _UNKNOWN:
        return None
    if text in _NO_LIMIT:
        return float("inf")
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time in Slurm's format, for example 1-02:03:04")
    days, hours, minutes, seconds = match.groups()
    return ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + float(seconds)


def parse_size(text: str, *, unit: str = "") -> int | None:
    """Return the bytes of ``3120K``, ``0.01M`` or ``4000Mn``; a number without unit is in ``unit`` (K, M…).

    Raises:
        ValueError: if it is not a size.
    """
    if text in _UNKNOWN:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size in Slurm's format, for example 3120K")
    number, letter, _ = match.groups()
    return round(float(number) * _FACTORS[letter.upper() or unit])


def parse_moment(text: str) -> datetime | None:
    """Return a time that sacct printed, in this machine's time zone.

    Raises:
        ValueError: if it is not a time.
    """
    return None if text in _UNKNOWN else datetime.fromisoformat(text).astimezone()


def parse_tres(text: str) -> Mapping[str, str]:
    """Return trackable resources such as ``billing=1,cpu=4,gres/gpu:v100=2,mem=100M,node=1`` by name."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in pairs}


def count_gpus(tres: Mapping[str, str]) -> int:
    """Return the number of GPUs among trackable resources: the total if it is there, else the sum over models."""
    if "gres/gpu" in tres:
        return int(tres["gres/gpu"])
    return sum(int(value) for name, value in tres.items() if name.startswith("gres/gpu:"))
