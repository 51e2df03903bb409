"""Text and JSON of campaigns."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from foretell.apps.render import BUSY_CORES, STATE_STYLES, build_run_record, explain_outcome
from foretell.campaigns.campaign_plan import CampaignResult, CampaignStatus, Cancellation, Ending, Plan, Progress
from foretell.core.app import Scale
from foretell.core.batch import BatchStatus
from foretell.core.render.phrases import (
    clean_line,
    count,
    explain_failure,
    name_state,
    render_memory,
    render_parameters,
    render_size,
    render_time,
)
from foretell.core.render.tables import BAD, HEADING, QUIET, add_cells, build_facts, build_line, build_table, stack
from foretell.core.run import Run, RunSpec, State
from foretell.core.serialization import Record, build_record
from foretell.core.units import render_duration

_ORDER = (
    State.COMPLETED, State.FAILED, State.TIMED_OUT, State.OUT_OF_MEMORY, State.CANCELLED, State.INTERRUPTED,
)  # fmt: skip


def render_status(status: CampaignStatus) -> Group:
    """Return stored runs by state, and submitted batches."""
    unfinished = sum(batch.unfinished for batch in status.batches)
    here = status.counts.get(State.RUNNING, 0) - unfinished
    facts = [(name_state(state).capitalize(), f"{status.counts.get(state, 0):,}") for state in _ORDER]
    title = f"{status.app}: {count(sum(status.counts.values()), 'run')}, {unfinished:,} submitted to Slurm"
    return stack(
        build_line(title, HEADING),
        build_facts([(name, number) for name, number in facts if number != "0"]),
        build_facts([("Running in 'foretell generate'", f"{here:,}")]) if here > 0 else None,
        _build_batches(status.batches) if status.batches else None,
        Text(f"{count(status.collected, 'run')} ended since the last check and are stored now.")
        if status.collected
        else None,
        *(build_line(f"Note: {note}", "yellow") for note in status.notes),
        Text(_render_next(unfinished), style=QUIET),
    )


def _build_batches(batches: tuple[BatchStatus, ...]) -> Group:
    table = build_table(
        "Job", "Runs", "Queued", "Running", "Ended", "Waits for", numbers=("Runs", "Queued", "Running", "Ended")
    )
    for current in batches:
        batch = current.batch
        ended = len(batch.run_ids) - current.queued - current.running
        add_cells(
            table,
            batch.job_id or "not submitted",
            f"{len(batch.run_ids):,}",
            f"{current.queued:,}",
            f"{current.running:,}",
            f"{ended if batch.job_id else 0:,}",
            ", ".join(current.why),
        )
    return stack(table)


def _render_next(unfinished: int) -> str:
    if unfinished:
        return "'foretell generate --wait' waits for them; 'foretell cancel' cancels them."
    return "No jobs in Slurm. 'foretell generate' makes the missing runs, 'foretell build' fits models to stored ones."


def render_cancellation(done: Cancellation) -> Group:
    """Return what was cancelled."""
    notes = [build_line(f"Note: {note}", "yellow") for note in done.notes]
    if not done.jobs and not done.cancelled:
        ended = f"; {count(done.collected, 'run')} had ended and are stored" if done.collected else ""
        return stack(build_line(f"{done.app}: no jobs in Slurm{ended}."), *notes)
    jobs = ", ".join(done.jobs)
    return stack(
        build_line(f"{done.app}: {count(done.cancelled, 'run')} cancelled (job {jobs})", HEADING),
        Text(f"{count(done.collected, 'run')} had ended before and are stored.") if done.collected else None,
        *notes,
        Text("'foretell generate' makes the cancelled runs again.", style=QUIET),
    )


def build_plan_record(plan: Plan) -> Record:
    return build_record(plan) | {"specs": [_build_spec_record(spec) for spec in plan.specs], "runs": len(plan.specs)}


def build_result_record(result: CampaignResult) -> Record:
    return build_record(result) | {"failures": [build_run_record(run) for run in result.failures]}


def _build_spec_record(spec: RunSpec) -> Record:
    return {"id": spec.id} | build_record(spec)


_BAR_WIDTH = 20
_FAILURES = 10
_REMARKS = 3
_ENDINGS = {
    Ending.NARROW_ENOUGH: "the requested precision is reached",
    Ending.NO_LONGER_PAYS: "more runs would hardly narrow the intervals for their time",
    Ending.NOTHING_LEFT: "every configuration was run",
    Ending.BUDGET: "nothing more fits the budget",
}


def render_plan(plan: Plan, *, rows: int = 10) -> Group:
    """Return what a campaign will do."""
    if not plan.specs:
        return stack(build_line(f"{plan.app}: {_render_nothing(plan)}", HEADING), build_facts(_list_other_facts(plan)))
    first = " first" if plan.undecided else ""
    where = f"{plan.at_once} at once" if plan.partition is None else f"in partition {plan.partition} of Slurm"
    title = build_line(f"{plan.app}: {count(len(plan.specs), 'run')} to make{first}, {where}", HEADING)
    busy = f"{plan.busy_cores:.1f} cores of this machine are busy; measurements are better on an idle one."
    return stack(
        title,
        build_facts([*_list_plan_facts(plan), *_list_other_facts(plan)]),
        _build_specs(plan.specs, rows),
        Text(f"Note: {busy}", style="yellow") if plan.busy_cores >= BUSY_CORES else None,
    )


def _render_nothing(plan: Plan) -> str:
    if plan.ending:
        return f"nothing needs to run: {_ENDINGS[plan.ending]}"
    if plan.left_out:
        return "nothing that is left fits the budget"
    return "nothing else is left to run" if plan.running_elsewhere else "nothing is left to run"


def _list_plan_facts(plan: Plan) -> list[tuple[str, str]]:
    """Return facts of the runs to make."""
    scales = Counter(spec.scale for spec in plan.specs)
    return [
        ("Sweep", f"{scales[Scale.SCALED_DOWN]:,} scaled down, {scales[Scale.FULL_SCALE]:,} full scale"),
        ("Will take", _render_plan_duration(plan)),
        ("Will cost", "" if plan.core_h is None else f"about {plan.core_h:.3g} core-hours"),
        ("May follow", f"{plan.undecided:,}, depending on these" if plan.undecided else ""),
        ("Cannot run", "; ".join(_render_obstacle(why, runs) for why, runs in plan.obstacles.items())),
    ]


def _render_obstacle(why: str, runs: int) -> str:
    return f"{count(runs, 'run')}: {why if runs == 1 else why.replace('it requests', 'they request', 1)}"


def _list_other_facts(plan: Plan) -> list[tuple[str, str]]:
    again = f"--retry-failed makes {_them(plan.failed)} again"
    fit = "does not fit" if plan.left_out == 1 else "do not fit"
    return [
        ("Stored already", f"{plan.stored:,}" if plan.stored else ""),
        ("Failed before", f"{plan.failed:,} ({again})" if plan.failed else ""),
        (_name_running(plan), f"{plan.running_elsewhere:,}" if plan.running_elsewhere else ""),
        ("Left out", f"{plan.left_out:,} {fit} the budget" if plan.left_out else ""),
        ("Excluded", f"{plan.excluded:,} by where in the app file" if plan.excluded else ""),
        ("Intervals", _render_widths(plan.width, plan.width_after)),
    ]


def _them(number: int) -> str:
    return "it" if number == 1 else "them"


def _name_running(plan: Plan) -> str:
    return "Running elsewhere" if plan.partition is None else "Submitted"


def _render_plan_duration(plan: Plan) -> str:
    most = None if plan.limit_s is None else f"at most {render_duration(plan.limit_s)} by the limit of each run"
    if plan.expected_s is None:
        return most or "unknown before the first runs"
    queue = "" if plan.partition is None else " without queueing, on the whole partition"
    about = f"about {render_duration(plan.expected_s)}{queue}" + (" if all may follow" if plan.undecided else "")
    return about + (f"; {most}" if most else "")


def _render_widths(width: float | None, after: float | None) -> str:
    if width is None:
        return ""
    return f"± {100 * width:.2g} %" + (
        "" if after is None else f" now, ± {100 * after:.2g} % expected after these runs"
    )


def _build_specs(specs: Sequence[RunSpec], rows: int) -> RenderableType:
    table = build_table("Scale", "Size", "Parameters")
    for spec in specs[:rows]:
        add_cells(table, spec.scale, render_size(spec.allocation), render_parameters(spec.parameters))
    return stack(table, _build_more(len(specs) - rows, "run"))


def _build_more(left: int, noun: str) -> Text | None:
    return Text(f"... and {left:,} more {noun}{'' if left == 1 else 's'}", style=QUIET) if left > 0 else None


def render_progress(progress: Progress) -> Group:
    """Return the progress of a campaign for a live display: a bar with counts, current runs, a note."""
    ended = min(progress.done + progress.failed, progress.total)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(
        ProgressBar(total=max(progress.total, 1), completed=ended, width=_BAR_WIDTH), _build_counts(progress, ended)
    )
    return stack(
        grid,
        _build_cut_line("intervals ", _render_adaptive(progress)),
        _build_cut_line("running   ", "; ".join(render_parameters(spec.parameters) for spec in progress.running)),
        _build_cut_line("note      ", progress.note),
    )


def _build_counts(progress: Progress, ended: int) -> Text:
    left = "" if progress.left_s is None else f", {render_duration(progress.left_s)} left"
    counts = Text(f"{ended:,}/{progress.total:,}: {progress.done:,} done, ", no_wrap=True, overflow="ellipsis")
    counts.append(f"{progress.failed:,} failed", style=BAD if progress.failed else "")
    queued = f", {progress.queued:,} queued" if progress.queued else ""
    return counts.append(f", {len(progress.running) - progress.queued:,} running{queued}{left}")


def _render_adaptive(progress: Progress) -> str:
    widths = _render_widths(progress.width, progress.width_after)
    return f"{widths}; {render_duration(progress.used_s)} used" if widths else ""


def _build_cut_line(title: str, text: str) -> Text | None:
    return Text(f"{title}{clean_line(text)}", style=QUIET, no_wrap=True, overflow="ellipsis") if text else None


def render_outcome(run: Run) -> Group:
    """Return one line for a run that has ended."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{name_state(run.state):<13}", style=STATE_STYLES.get(run.state, BAD))
    line.append(f" {render_time(run):>13} {render_memory(run):>8}  ")
    failure = "" if run.state is State.COMPLETED else f"  ({explain_failure(run)})"
    line.append(render_parameters(run.spec.parameters) + failure)
    return stack(line)  # a bare Text would wrap


def render_campaign_result(result: CampaignResult) -> Group:
    """Return what a campaign did, and what failed."""
    made = (
        f"{count(result.completed, 'run')} completed, {result.failed:,} failed in {render_duration(result.elapsed_s)}"
    )
    if result.submitted and not result.completed and not result.failed:
        made = f"{count(result.submitted, 'run')} submitted"
    elsewhere = result.elsewhere_completed + result.elsewhere_failed
    recovered = f"Stored from an interrupted campaign: {count(result.recovered, 'run')}"
    return stack(
        build_line(f"{result.app}: {made}", HEADING),
        Text(recovered) if result.recovered else None,
        Text(f"Made by other processes meanwhile: {count(elsewhere, 'run')}, {result.elsewhere_failed:,} failed")
        if elsewhere
        else None,
        _build_submitted(result) if result.submitted or result.held_back else None,
        Text(_render_elsewhere(result.running_elsewhere), style="yellow") if result.running_elsewhere else None,
        Text(_render_left(result)) if result.left else None,
        Text(_render_disturbed(result), style="yellow") if result.disturbed or result.repeated else None,
        _build_remarks(result.remarks) if result.remarks else None,
        build_line(f"Stopped: {result.stopped}", "yellow") if result.stopped else None,
        build_line(f"Ended: {_ENDINGS[result.ending]}", "") if result.ending else None,
        Text(f"Intervals: {_render_widths(result.width, None)}, the mean half-width of 90 % intervals")
        if result.width
        else None,
        _build_failures(result.failures) if result.failures else None,
        build_line(f"Log: {result.log}", QUIET) if result.log and _is_log_useful(result) else None,
    )


def _is_log_useful(result: CampaignResult) -> bool:
    return bool(result.failures or result.notes or result.stopped or result.submitted)


def _render_elsewhere(runs: int) -> str:
    are = "is" if runs == 1 else "are"
    return (
        f"{count(runs, 'run')} {are} being made by another process; 'foretell generate --wait' waits for {_them(runs)}."
    )


def _render_left(result: CampaignResult) -> str:
    about = "" if result.left_s is None else f", about {render_duration(result.left_s)}"
    return (
        f"Left out by the budget: {count(result.left, 'run')}{about}; 'foretell generate' makes {_them(result.left)}."
    )


def _render_disturbed(result: CampaignResult) -> str:
    again = f"{count(result.repeated, 'run')} measured again because other processes had used this machine."
    left = f"{count(result.disturbed, 'run')} measured while other processes used this machine: times may be too long."
    return " ".join(text for number, text in ((result.repeated, again), (result.disturbed, left)) if number)


def _build_remarks(remarks: Mapping[str, int]) -> Group:
    """Return notes on completed runs, the most frequent first."""
    most_first = sorted(remarks.items(), key=lambda pair: -pair[1])
    lines = [f"Note on {count(runs, 'completed run')}: {clean_line(text)}" for text, runs in most_first[:_REMARKS]]
    rest = sum(runs for _, runs in most_first[_REMARKS:])
    more = [f"... and notes on {count(rest, 'more completed run')}: 'foretell runs show RUN' has them."] * bool(rest)
    return stack(*(Text(line, style="yellow") for line in (*lines, *more)))


def _build_submitted(result: CampaignResult) -> Group:
    jobs = f" (job {', '.join(filter(None, result.jobs))})" if any(result.jobs) else ""
    held = f"{count(result.held_back, 'run')} could not be submitted yet: the limit of the site is reached."
    hint = "'foretell status' shows their state, 'foretell generate' collects them and submits the rest."
    return stack(
        build_line(f"Submitted to Slurm: {count(result.submitted, 'run')}{jobs}. You may close the terminal."),
        Text(held, style="yellow") if result.held_back else None,
        Text(hint, style=QUIET),
    )


def _build_failures(failures: Sequence[Run]) -> Group:
    table = build_table("Run", "Outcome", "Why", "Parameters", whole=("Run",))
    for run in failures[:_FAILURES]:
        add_cells(table, run.id, name_state(run.state), explain_outcome(run), render_parameters(run.spec.parameters))
    hint = "See one with 'foretell runs show RUN'; make them again with 'foretell generate --retry-failed'."
    return stack(table, _build_more(len(failures) - _FAILURES, "failed run"), Text(hint, style=QUIET))
