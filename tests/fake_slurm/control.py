"""What ``scancel`` and ``scontrol`` do to tasks."""

import os
import time

from tests.fake_slurm.state import RefusalError, State, Task, find_fault


def check_controller(prefix: str) -> None:
    """Refuse if a test made the controller silent."""
    if find_fault("slurmctld-down") is not None:
        raise RefusalError(f"{prefix} Unable to contact slurm controller (connect failure)")


def cancel(state: State, tasks: list[Task]) -> None:
    """Cancel tasks; one that waits in an array, while others of it wait on, just vanishes, as from the real one."""
    chosen = {task.id for task in tasks}
    for task in tasks:
        if task.state == "RUNNING":
            stop(task, "CANCELLED by 0")
        elif task.state == "PENDING":
            if any(other.id not in chosen for other in state.get_pending(task.batch)):
                state.tasks.remove(task)
            else:
                task.state, task.end_at = "CANCELLED by 0", time.time()


def stop(task: Task, word: str) -> None:
    """Make the worker of a running task end it, with a reason."""
    draft = f"{task.stop_file}.new"  # never to be read half written
    with open(draft, "w") as file:
        file.write(word)
    os.rename(draft, task.stop_file)
