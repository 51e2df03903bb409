"""Slurm's words for how a job stands, and ours. A word that is not here is an error: guessing would teach nonsense."""

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
