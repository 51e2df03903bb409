"""Slurm's names of states and ours."""

import pytest

from foretell.core.errors import SchedulerError
from foretell.core.run import State
from foretell.schedulers.slurm.commands import STATES, parse_state

# https://slurm.schedmd.com/job_state_codes.html
SLURM_S = """
    BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING PREEMPTED RUNNING SUSPENDED TIMEOUT
    COMPLETING CONFIGURING EXPEDITING LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL REQUEUED REQUEUE_FED REQUEUE_HOLD
    RESIZING RESV_DEL_HOLD REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED UPDATE_DB
"""


def test_every_state_of_slurm_is_known() -> None:
    assert set(STATES) == set(SLURM_S.split())


@pytest.mark.parametrize(
    ("word", "state", "final"),
    [
        ("CANCELLED by 1000", State.CANCELLED, True),
        ("TIMEOUT", State.TIMED_OUT, True),
        ("OUT_OF_MEMORY", State.OUT_OF_MEMORY, True),
        ("NODE_FAIL", State.INTERRUPTED, True),
        ("PREEMPTED", State.INTERRUPTED, True),
        ("REQUEUED", State.QUEUED, False),
        ("COMPLETING", State.RUNNING, False),
    ],
)
def test_states(word: str, state: State, final: bool) -> None:
    assert (parse_state(word), parse_state(word).final) == (state, final)


@pytest.mark.parametrize("word", ["MELTED", "", " ", "completed"])
def test_an_unknown_state_is_an_error(word: str) -> None:
    with pytest.raises(SchedulerError, match=f"an unknown state: {word!r}"):
        parse_state(word)
