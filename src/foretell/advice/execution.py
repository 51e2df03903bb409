"""Recommends a request, submits it, raises it where it was too small, and stores the runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from foretell.advice.api import recommend
from foretell.advice.policy import choose_policy
from foretell.advice.site_lookup import LOCAL, find_site
from foretell.apps.command import build_launch
from foretell.apps.workspace import batch_directory, check_unchanged, directory_of, resolve_own_app, run_directory
from foretell.campaigns.campaign import Campaign
from foretell.campaigns.campaign_plan import Progress
from foretell.campaigns.placement import RunnerOptions, check_local
from foretell.campaigns.waiting import RetryingStore
from foretell.core.app import App, Submission
from foretell.core.errors import NotFoundError, RunnerError
from foretell.core.prediction import Attempt, Execution, Offer, Recommendation, Request
from foretell.core.prices import charge
from foretell.core.run import RETRIABLE, Allocation, Run, RunSpec, State, find_repetition
from foretell.core.site import NodeType, Site
from foretell.core.units import render_bytes, render_duration, render_price
from foretell.runtimes.api import Configuration
from foretell.schedulers.shell_script import render_shell_script
from foretell.schedulers.slurm.job_array import build_batch, find_walltime_s, render_array_script, render_task_script
from foretell.stores import RunStore
from foretell.stores.opening import StoreLike, using_store

_MINUTE_S, _MEBIBYTE = 60.0, 2**20


class RaisePolicy(Protocol):
    """How much more to request."""

    def walltime_s(self, asked_s: float) -> float: ...

    def memory_bytes(self, asked: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Doubling:
    """Twice as much each time, as HARP does."""

    def walltime_s(self, asked_s: float) -> float:
        return 2 * asked_s

    def memory_bytes(self, asked: int) -> int:
        return 2 * asked


@dataclass(frozen=True, slots=True)
class LeastCost:
    """The next request of the sequence that costs least on average; twice as much after its last one."""

    request: Request

    def walltime_s(self, asked_s: float) -> float:
        return _next(self.request.retries_walltime_s, asked_s) or 2 * asked_s

    def memory_bytes(self, asked: int) -> int:
        return int(_next(self.request.retries_memory, asked) or 2 * asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The largest request that the site and the user allow; ``None`` where there is no limit."""

    walltime_s: float | None = None
    memory_bytes: int | None = None


def raise_request(asked: Allocation, state: State, *, by: RaisePolicy, ceiling: Ceiling) -> Allocation | str:
    """The next request after a run that ended in this state; or, as a sentence, why there is none."""
    if state is State.TIMED_OUT and asked.walltime_s is not None:
        more_s = _cap(_round_up(by.walltime_s(asked.walltime_s), _MINUTE_S), ceiling.walltime_s)
        if more_s > asked.walltime_s:
            return replace(asked, walltime_s=more_s)
        return f"it ran out of time, and {render_duration(asked.walltime_s)} is the most that may be requested"
    if state is State.OUT_OF_MEMORY and asked.memory_bytes is not None:
        more = int(_cap(_round_up(by.memory_bytes(asked.memory_bytes), _MEBIBYTE), ceiling.memory_bytes))
        if more > asked.memory_bytes:
            return replace(asked, memory_bytes=more)
        return f"it ran out of memory, and {render_bytes(asked.memory_bytes)} is the most that may be requested"
    return ""


def _next(planned: Sequence[float], asked: float) -> float | None:
    return next((more for more in planned if more > asked), None)


def _round_up(value: float, step: float) -> float:
    return -(-value // step) * step


def _cap(value: float, most: float | None) -> float:
    return value if most is None else min(value, most)


ON_LIMIT = ("least-cost", "double", "stop")
_SHELL = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The job that a user wants to run, and its limits.

    ``walltime_s`` and ``memory_bytes`` replace what is recommended in the first request. ``on_limit`` says what to do
    if that was too small: submit the next request of least expected cost, request twice as much, or stop.
    """

    configuration: Configuration
    site: Site | str = LOCAL
    max_time_s: float | None = None
    max_cost: Decimal | None = None
    prefer: str = "auto"
    risk: float | None = None
    retry_cost: float | None = None
    walltime_s: float | None = None
    memory_bytes: int | None = None
    on_limit: str = ON_LIMIT[0]
    extrapolate: bool = False
    submission: Submission = field(default_factory=Submission)


def run(
    app: App | str | Path,
    request: JobRequest,
    *,
    store: StoreLike = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_start: Callable[[Recommendation, Allocation], None] = lambda *_: None,
) -> Execution:
    """Recommend, submit and wait; request more if time or memory ran out; store the run.

    Raises:
        InfeasibleError: if nothing works, or nothing within the limits.
        NotFoundError: if there is no such app or site, no model yet, or no such ``on_limit``.
        ProgramChangedError: if the program has changed since the stored runs were made.
        SpecError: if ``prefer`` is unknown, or there are Slurm options for a site without Slurm.
        RunnerError: if it cannot be submitted.
    """
    with using_store(store, directory_of(app)) as opened:
        job = _prepare(app, request, opened)
        on_start(job.recommendation, job.asked)
        return _run_attempts(job, opened, on_progress)


def preview(app: App | str | Path, request: JobRequest, *, store: StoreLike = None) -> tuple[Recommendation, str]:
    """What :func:`run` would do: the recommendation, and the scripts it would submit.

    Raises:
        InfeasibleError: if nothing works, or nothing within the limits.
        NotFoundError: if there is no such app or site, or no model yet.
        SpecError: if ``prefer`` is unknown, or there are Slurm options for a site without Slurm.
    """
    with using_store(store, directory_of(app)) as opened:
        job = _prepare(app, request, opened)
        return job.recommendation, job.render()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    app: App
    request: JobRequest
    site: Site
    node: NodeType
    recommendation: Recommendation
    asked: Allocation

    @property
    def offer(self) -> Offer:
        return self.recommendation.picked

    @property
    def ceiling(self) -> Ceiling:
        limits = [limit for limit in (self.node.max_walltime_s, self.request.max_time_s) if limit is not None]
        return Ceiling(walltime_s=min(limits, default=None), memory_bytes=self.node.memory_bytes)

    @property
    def where(self) -> RunnerOptions:
        if self.site.scheduler == _SHELL:
            return RunnerOptions(runner="local")
        cluster = self.node.cluster or self.site.name
        options = {name: value.replace("{cluster}", cluster) for name, value in self.site.script.items()}
        account = options.pop("account", None)  # the user may name another
        base = Submission(account=account, options=options, without=self.site.refuses)
        return RunnerOptions(runner="slurm", submission=self.request.submission.over(base))

    def specify(self, asked: Allocation, *, repetition: int = 0) -> RunSpec:
        # Runs of campaigns on this machine name no partition either.
        allocation = replace(asked, partition=None, node_type=None) if self.site.scheduler == _SHELL else asked
        parameters = self.offer.prediction.parameters
        return RunSpec(
            app=self.app.name,
            parameters=parameters,
            allocation=allocation,
            repetition=repetition,
            version=self.app.version,
        )

    def render(self) -> str:
        """The scripts as they would be submitted."""
        spec = self.specify(self.asked)
        launch = build_launch(self.app, spec, run_directory=run_directory(self.app, spec.id))
        if self.site.scheduler == _SHELL:
            return render_shell_script(launch, allocation=spec.allocation)
        submission = self.where.submission.over(self.app.submission)
        batch = build_batch(
            self.app.name, directory=batch_directory(self.app), submission=submission, run_ids=(spec.id,)
        )
        allocation = replace(spec.allocation, walltime_s=find_walltime_s(launch.time_limit_s, spec.allocation))
        array = render_array_script(batch, allocation=allocation)
        return f"{array}\n# ---- task-0.sh ----\n{render_task_script(launch, allocation=spec.allocation)}"

    def bill(self, run: Run, asked: Allocation) -> Decimal:
        """The cost of what was allocated; without accounting, of what was requested, for the measured time."""
        if run.allocated is not None and run.started_at is not None and run.ended_at is not None:
            return charge(self.node, run.allocated, (run.ended_at - run.started_at).total_seconds())
        return charge(self.node, asked, run.usage.elapsed_s if run.usage is not None else 0.0)


def _prepare(app: App | str | Path, request: JobRequest, store: RunStore) -> _Job:
    if request.on_limit not in ON_LIMIT:
        raise NotFoundError("way to continue at a limit", request.on_limit, known=ON_LIMIT)
    known = resolve_own_app(app, store)
    check_unchanged(known, store)
    site = find_site(request.site) if isinstance(request.site, str) else request.site
    if site.scheduler == _SHELL:
        check_local(request.submission, remedy="name a cluster with --site")
    policy = choose_policy(max_time_s=request.max_time_s, max_cost=request.max_cost, prefer=request.prefer)
    recommendation = recommend(
        known,
        request.configuration,
        site=site,
        policy=policy,
        store=store,
        risk=request.risk,
        retry_cost=request.retry_cost,
        extrapolate=request.extrapolate,
    )
    asked = recommendation.picked.allocation
    node = site.find_node_type(asked.node_type)
    assert node is not None  # the offer came from there
    asked = replace(
        asked,
        walltime_s=request.walltime_s or asked.walltime_s,
        memory_bytes=request.memory_bytes or asked.memory_bytes,
    )
    return _Job(app=known, request=request, site=site, node=node, recommendation=recommendation, asked=asked)


def _run_attempts(job: _Job, store: RunStore, on_progress: Callable[[Progress], None]) -> Execution:
    attempts: list[Attempt] = []
    asked = job.asked
    while True:
        try:
            run = _submit(job, asked, store, on_progress)
        except KeyboardInterrupt:
            why_stopped = _explain_leaving(job)
            break
        attempts.append(Attempt(asked=asked, run=run, bill=job.bill(run, asked)))
        further = _ask_again(job, attempts)
        if isinstance(further, str):
            why_stopped = further
            break
        asked = further
    return Execution(
        app=job.app.name,
        offer=job.offer,
        why=job.recommendation.why,
        attempts=tuple(attempts),
        why_stopped=why_stopped,
        by_accounting=bool(attempts) and all(attempt.run.allocated is not None for attempt in attempts),
    )


def _submit(job: _Job, asked: Allocation, store: RunStore, on_progress: Callable[[Progress], None]) -> Run:
    """One attempt, tracked to its end; one that an earlier call submitted is resumed."""
    states = store.known_ids(job.app.name)
    spec = find_repetition(job.specify(asked), lambda run_id: states.get(run_id) is State.COMPLETED)
    retrying = RetryingStore(store)
    with job.where.open(job.app, retrying.store, retry=RETRIABLE, only={spec.id: spec}) as (runner, claims):
        campaign = Campaign(
            app=job.app,
            store=retrying.store,
            retrying=retrying,
            runner=runner,
            claims=claims,
            on_progress=on_progress,
            total=1,
        )
        with campaign.retrying_store():
            campaign.make([] if spec in runner.running else [spec])
    if not campaign.finished:
        raise RunnerError(
            f"run {spec.id} of {spec.app!r} is being made by another process; try again when it has ended"
        )
    return campaign.finished[-1]


def _ask_again(job: _Job, attempts: list[Attempt]) -> Allocation | str:
    """The next request; or why there is none, which is empty if the job has completed."""
    last = attempts[-1]
    if job.request.on_limit == "stop":
        return "" if last.run.state is State.COMPLETED else "asked to stop where a request is too small"
    by = Doubling() if job.request.on_limit == "double" else LeastCost(job.offer.prediction.request)
    further = raise_request(last.asked, last.run.state, by=by, ceiling=job.ceiling)
    if isinstance(further, str) or job.request.max_cost is None or further.walltime_s is None:
        return further
    cost = sum((attempt.bill for attempt in attempts), charge(job.node, further, further.walltime_s))
    if cost <= job.request.max_cost:
        return further
    most = render_price(job.request.max_cost, job.site.currency)
    return f"requesting more could cost {render_price(cost, job.site.currency)} in all, and {most} is the limit"


def _explain_leaving(job: _Job) -> str:
    if job.site.scheduler == _SHELL:
        return "interrupted; run the same command again to start anew"
    return "interrupted; the job continues: run the same command again to resume, or 'foretell cancel' to cancel it"
