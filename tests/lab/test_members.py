"""Members of a training that fail in every possible way; small scripts replace them."""

import pytest
from lab.links import LOOPBACK, Links, Node
from lab.training_group import open_group
from lab.training_jobs import TrainedNetwork, TrainingJob

from foretell.core.errors import RunnerError
from foretell.distributed.consumption import Setting

JOB = TrainingJob(network=TrainedNetwork(), batch=2, setting=Setting(workers=1))
READY, STARTED = """echo '{"event": "ready"}'""", """echo '{"event": "started", "pid": 1}'"""


def play(*lines: str) -> Links:
    """One node, whose member is this script."""
    return Links([Node(address="127.0.0.1", interface=LOOPBACK, prefix=("sh", "-c", "\n".join(lines)))])


def test_a_killed_member_is_reported_at_once() -> None:
    links = play(READY, "read order", STARTED, """echo '{"event": "ended", "code": -9}'""", "read order")
    with open_group(links) as group:
        group.start(JOB)
        with pytest.raises(RunnerError, match=r"was ended \(-9\); is there enough memory"):
            group.finish(JOB)


def test_output_of_a_model_is_no_message() -> None:
    links = play("echo loading", READY, "read order", "echo 'batch {1'", STARTED, "read order")
    with open_group(links) as group:
        assert group.start(JOB) == 1


def test_one_that_cannot_start_leaves_the_next_job_new_members() -> None:
    links = play("exit 3")
    with open_group(links) as group:
        for _ in range(2):  # the same is said again, not that a pipe is broken
            with pytest.raises(RunnerError, match="ended early"):
                group.start(JOB)


def test_the_last_line_of_a_member_that_ends_early_is_reported() -> None:
    links = play("echo before >&2; echo 'no room left' >&2", "exit 3")
    with open_group(links) as group, pytest.raises(RunnerError, match=r"ended early: no room left$"):
        group.start(JOB)
