"""The words of Slurm's fields as values: times, sizes, counts. Empty or unknown ones are ``None``."""

import re
from collections.abc import Mapping
from datetime import datetime

from foretell.core.errors import SchedulerError
from foretell.core.run import State

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
    """Our state for Slurm's word; ``CANCELLED by 1000`` is one of them.

    Raises:
        SchedulerError: if it is none we know.
    """
    try:
        return STATES[word.split()[0]]
    except (KeyError, IndexError):
        raise SchedulerError(
            f"Slurm reported a state we do not know: {word!r}; known are {', '.join(STATES)}. Please report it"
        ) from None


_CLOCK = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)(?:i?B)?([cn]?)", re.IGNORECASE)
_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
_UNKNOWN = {"", "Unknown", "None", "N/A", "(null)", "INVALID"}
_NO_LIMIT = {"UNLIMITED", "Partition_Limit", "INFINITE"}


def parse_clock(text: str) -> float | None:
    """Seconds of ``1-02:03:04``, ``02:03:04`` or ``03:04.567``; no limit is infinite.

    Raises:
        ValueError: if it is none of these.
    """
    if text in _UNKNOWN:
        return None
    if text in _NO_LIMIT:
        return float("inf")
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time as Slurm writes them, for example 1-02:03:04")
    days, hours, minutes, seconds = match.groups()
    return ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + float(seconds)


def parse_size(text: str, *, unit: str = "") -> int | None:
    """Bytes of ``3120K``, ``0.01M`` or ``4000Mn``; a bare number is in ``unit`` (K, M…).

    Raises:
        ValueError: if it is no size.
    """
    if text in _UNKNOWN:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no size as Slurm writes them, for example 3120K")
    number, letter, _ = match.groups()
    return round(float(number) * _FACTORS[letter.upper() or unit])


def parse_moment(text: str) -> datetime | None:
    """A moment as sacct prints it, in this machine's time zone.

    Raises:
        ValueError: if it is none.
    """
    return None if text in _UNKNOWN else datetime.fromisoformat(text).astimezone()


def parse_tres(text: str) -> Mapping[str, str]:
    """``billing=1,cpu=4,gres/gpu:v100=2,mem=100M,node=1`` by name."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in pairs}


def count_gpus(tres: Mapping[str, str]) -> int:
    """GPUs among trackable resources: the total if it is there, else what the models add up to."""
    if "gres/gpu" in tres:
        return int(tres["gres/gpu"])
    return sum(int(value) for name, value in tres.items() if name.startswith("gres/gpu:"))
