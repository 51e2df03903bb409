"""How runs stand with a scheduler, for a terminal."""

from rich.console import Group
from rich.text import Text

from foretell.entities.job import Standing
from foretell.entities.plan import CampaignStatus, Cancellation
from foretell.entities.run import State
from foretell.reports.tables import HEADING, QUIET, add_cells, build_facts, build_line, build_table, stack
from foretell.reports.words import count, name_state

_ORDER = (
    State.COMPLETED, State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.CANCELLED, State.INTERRUPTED,
)  # fmt: skip


def render_status(status: CampaignStatus) -> Group:
    """What is stored, and what the scheduler has."""
    unfinished = sum(batch.unfinished for batch in status.batches)
    here = status.counts.get(State.RUNNING, 0) - unfinished
    facts = [(name_state(state).capitalize(), f"{status.counts.get(state, 0):,}") for state in _ORDER]
    title = f"{status.app}: {count(sum(status.counts.values()), 'run')}, {unfinished:,} with Slurm"
    return stack(
        build_line(title, HEADING),
        build_facts([(name, number) for name, number in facts if number != "0"]),
        build_facts([("Being run by a 'foretell generate'", f"{here:,}")]) if here > 0 else None,
        _build_batches(status.batches) if status.batches else None,
        Text(f"{count(status.collected, 'run')} ended since the last look and are stored now.")
        if status.collected
        else None,
        *(build_line(f"Note: {note}", "yellow") for note in status.notes),
        Text(_render_next(unfinished), style=QUIET),
    )


def _build_batches(batches: tuple[Standing, ...]) -> Group:
    table = build_table(
        "Job", "Runs", "Queued", "Running", "Ended", "Waits for", numbers=("Runs", "Queued", "Running", "Ended")
    )
    for standing in batches:
        batch = standing.batch
        ended = len(batch.run_ids) - standing.queued - standing.running
        add_cells(
            table,
            batch.job_id or "not submitted",
            f"{len(batch.run_ids):,}",
            f"{standing.queued:,}",
            f"{standing.running:,}",
            f"{ended if batch.job_id else 0:,}",
            ", ".join(standing.why),
        )
    return stack(table)


def _render_next(unfinished: int) -> str:
    if unfinished:
        return "'foretell generate --wait' follows them; 'foretell cancel' cancels them."
    return "Nothing is with Slurm. 'foretell generate' makes what is left, 'foretell build' learns from what is there."


def render_cancellation(done: Cancellation) -> Group:
    """What was cancelled."""
    notes = [build_line(f"Note: {note}", "yellow") for note in done.notes]
    if not done.jobs and not done.cancelled:
        ended = f"; {count(done.collected, 'run')} had ended and are stored" if done.collected else ""
        return stack(build_line(f"{done.app}: nothing is with Slurm{ended}."), *notes)
    jobs = ", ".join(done.jobs)
    return stack(
        build_line(f"{done.app}: {count(done.cancelled, 'run')} cancelled (job {jobs})", HEADING),
        Text(f"{count(done.collected, 'run')} had ended before and are stored.") if done.collected else None,
        *notes,
        Text("'foretell generate' makes the cancelled ones again.", style=QUIET),
    )
