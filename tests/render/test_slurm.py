"""How runs stand with a scheduler, and what a job came to, as a terminal shows it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from foretell.advice.render import build_execution_record, render_execution, render_start
from foretell.campaigns.campaign_plan import CampaignResult, CampaignStatus, Cancellation, Plan, Progress
from foretell.campaigns.render import (
    render_campaign_result,
    render_cancellation,
    render_plan,
    render_progress,
    render_status,
)
from foretell.core.app import Submission
from foretell.core.batch import Batch, BatchStatus
from foretell.core.prediction import Attempt, Execution, Recommendation
from foretell.core.run import Owner, Run, RunSpec, State, Usage
from foretell.core.serialization import render_json

Golden = Callable[[str, str], None]
ToText = Callable[..., str]


def build_batch(job_id: str, runs: int) -> Batch:
    return Batch(
        id=f"b{job_id}",
        app="fcnet",
        name=f"fcnet-b{job_id}",
        directory="/home/ann/fcnet/.foretell/batches/fcnet/b",
        submission=Submission(partition="cpu"),
        run_ids=tuple(f"{number:016x}-0" for number in range(runs)),
        submitter=Owner(token="t", hostname="login1", boot_id="b", pid=1, started_at=0.0),
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        job_id=job_id,
    )


@pytest.fixture
def status() -> CampaignStatus:
    return CampaignStatus(
        app="fcnet",
        counts={State.COMPLETED: 1160, State.FAILED: 2, State.TIMED_OUT: 1, State.RUNNING: 237},
        batches=(
            BatchStatus(
                batch=build_batch("4711", 1000), unfinished=200, queued=150, running=48, why=("Priority", "Resources")
            ),
            BatchStatus(batch=build_batch("", 37), unfinished=37, queued=0, running=0),
        ),
        collected=12,
        notes=("sacct: Problem talking to the database: Connection refused; retrying",),
    )


@pytest.fixture
def execution(recommendation: Recommendation) -> Execution:
    offer = recommendation.picked
    walltime_s = 2700.0
    asked = replace(offer.allocation, walltime_s=walltime_s, memory_bytes=800 * 2**20)
    spec = RunSpec(app="fcnet", parameters=offer.prediction.parameters, allocation=asked)
    short = Run(spec=spec, state=State.TIMED_OUT, usage=Usage(elapsed_s=walltime_s), job_id="4711_0")
    used = Usage(elapsed_s=offer.prediction.elapsed_s.value, peak_memory_bytes=350 * 2**20)
    done = Run(spec=spec, state=State.COMPLETED, usage=used, job_id="4712_0")
    return Execution(
        app="fcnet",
        offer=offer,
        why=recommendation.why,
        attempts=(
            Attempt(asked=asked, run=short, bill=Decimal("0.12")),
            Attempt(asked=replace(asked, walltime_s=2 * walltime_s), run=done, bill=Decimal("0.2")),
        ),
        by_accounting=True,
    )


def test_status(status: CampaignStatus, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_status.txt", to_text(render_status(status)))


def test_status_of_nothing_says_what_to_do(to_text: ToText) -> None:
    text = to_text(render_status(CampaignStatus(app="fcnet", counts={State.RUNNING: 3})))
    assert "No jobs in Slurm" in text
    assert "Running in 'foretell generate'  3" in text


def test_cancellation(to_text: ToText) -> None:
    text = to_text(render_cancellation(Cancellation(app="fcnet", jobs=("4711", "4712"), cancelled=198, collected=1)))
    assert "fcnet: 198 runs cancelled (job 4711, 4712)" in text
    assert "1 run had ended before" in text
    nothing = to_text(render_cancellation(Cancellation(app="fcnet", jobs=(), cancelled=0, collected=0)))
    assert nothing == "fcnet: no jobs in Slurm.\n"


def test_a_job_seen_through(execution: Execution, to_text: ToText, check_golden: Golden) -> None:
    check_golden("report_execution.txt", to_text(render_execution(execution)))


def test_a_job_that_was_given_up(execution: Execution, to_text: ToText) -> None:
    why = "it ran out of time, and 7 d 00 h is the most that may be requested"
    text = to_text(render_execution(replace(execution, attempts=execution.attempts[:1], why_stopped=why)))
    assert "timed out after 1 attempt" in text
    assert f"Stopped: {why}" in text


def test_a_job_left_alone(execution: Execution, to_text: ToText) -> None:
    left = replace(execution, attempts=(), why_stopped="interrupted; the job continues")
    assert to_text(render_execution(left)) == "fcnet: interrupted; the job continues\n"


def test_a_record_of_a_job_has_its_bill(execution: Execution) -> None:
    record = build_execution_record(execution)
    assert record["paid"] == 0.32
    assert [attempt["bill"] for attempt in record["attempts"]] == [0.12, 0.2]
    assert '"by_accounting": true' in render_json(record)


def test_the_start_is_one_sentence(recommendation: Recommendation) -> None:
    asked = recommendation.picked.allocation
    assert f"Picked {asked.node_type}" in render_start(recommendation, asked)


def test_a_plan_for_a_cluster_names_the_partition(plan: Plan, to_text: ToText) -> None:
    text = to_text(render_plan(replace(plan, partition="cpu", busy_cores=0.0)))
    assert "in partition cpu of Slurm" in text
    assert "at once" not in text.splitlines()[0]


def test_submitted_runs_are_reported(result: CampaignResult, to_text: ToText) -> None:
    handed = replace(result, completed=0, failed=0, failures=(), submitted=200, held_back=50, jobs=("4711", ""))
    text = to_text(render_campaign_result(handed))
    assert "fcnet: 200 runs submitted" in text
    assert "Submitted to Slurm: 200 runs (job 4711)" in text
    assert "50 runs could not be submitted yet" in text


def test_progress_distinguishes_the_queued_from_the_running(progress: Progress, to_text: ToText) -> None:
    waiting = replace(progress, queued=len(progress.running))
    assert f"0 running, {len(progress.running)} queued" in to_text(render_progress(waiting))
