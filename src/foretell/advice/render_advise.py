"""Advice for a training as text: the pick and why, the offers, and what does not work."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from foretell.advice.advise_results import Advice, RunnerUp, SiteAdvice, TrainingOffer
from foretell.advice.evidence_render import describe_evidence, describe_next_run
from foretell.advice.nearest_changes import list_obstacles, render_epochs
from foretell.advice.training_job import TrainingJob
from foretell.advice.training_script import describe_sharing
from foretell.core.prediction import Estimate
from foretell.core.render.phrases import (
    ELAPSED,
    count,
    describe_outcome,
    describe_request,
    name_node,
    render_cost,
    render_interval,
    render_level,
    render_range,
    render_risk,
    render_short_time,
)
from foretell.core.render.tables import (
    GOOD,
    HEADING,
    QUIET,
    FirstThatFits,
    WordTable,
    add_cells,
    build_facts,
    build_line,
    build_notes,
    build_table,
    build_warnings,
    stack,
)
from foretell.core.units import describe_money, render_bytes, render_duration, render_most_money

_LEGEND = "> picked   + runner-up   * no other is both quicker and cheaper   ! beyond a limit"
_SAME = 1.01  # times that differ less are shown as the same
_PART_TITLES = {
    "compute": "computing",
    "tensor": "communication inside of layers",
    "data": "communication of gradients and weights",
    "bubble": "waiting in the pipeline",
    "host": "the host",
}


def render_advice(advice: Advice, *, rows: int = 12) -> Group:
    """The pick, what it was picked from, and what does not work; and the other sites, if several are compared."""
    best = advice.best
    return stack(
        *_build_head(advice),
        *([_build_sites(advice)] if len(advice.sites) > 1 else []),
        _build_offers(best, choose_rows(best, rows)),
        *_build_rest(best, rows),
        *build_notes("Measured runs", describe_runs(advice), style=""),
        *build_notes("Does not work", _list_problems(advice), style=""),
        *build_warnings([*advice.warnings, *advice.picked.candidate.warnings]),
    )


def _build_head(advice: Advice) -> Iterator[RenderableType]:
    picked, job, best = advice.picked, advice.job, advice.best
    candidate = picked.candidate
    yield build_line(f"{job.name}: ask for {describe_request(picked.offer)}.", HEADING)
    yield build_line(f"{describe_outcome(picked.offer)}.")
    yield build_line(f"Why: {best.why}.")
    yield Text("")
    yield build_facts(
        [
            ("Training", describe_training(job, candidate.gpus or 1)),
            ("Step", f"{_describe_step(picked)}. {describe_sharing(picked, job)}."),
            ("Time", describe_phases(candidate.time.phases)),
            ("GPU memory", _describe_memory(picked)),
            ("Before the run", describe_first_answer(advice)),
            ("Runner-up", describe_runner_up(best.runner_up) if best.runner_up else ""),
            ("Next run", describe_next_run(advice.next_run, best.site.currency) if advice.next_run else ""),
        ]
    )


def describe_training(job: TrainingJob, gpus: int) -> str:
    """``90 epochs of 1,281,167 samples: 900,900 steps``."""
    steps = f"{job.count_steps(gpus):,} steps"
    if job.samples is None:
        return steps
    epochs = job.count_epochs(gpus) or 0.0
    return f"{render_epochs(epochs)} {'epoch' if epochs == 1 else 'epochs'} of {job.samples:,} samples: {steps}"


def _describe_step(offer: TrainingOffer) -> str:
    candidate = offer.candidate
    step = candidate.step
    interval = f"{render_level(step.level)}: {render_interval(step, render_short_time)}"
    predicted = f"{render_short_time(step.value)} ({interval}), most of it {_name_bound(offer)}"
    whole_s = candidate.time.phases["steps"].value / candidate.time.steps
    loaded = f"; {render_short_time(whole_s)} with the loading of its data" if whole_s > _SAME * step.value else ""
    return predicted + loaded


def _name_bound(offer: TrainingOffer) -> str:
    limit = offer.candidate.choice.step.main_limit
    return _PART_TITLES.get(limit, limit)


def describe_phases(phases: Mapping[str, Estimate]) -> str:
    """``start-up 45 s, steps 2 h 30 min``."""
    return ", ".join(f"{name} {_render_value(estimate)}" for name, estimate in phases.items())


def _render_value(estimate: Estimate) -> str:
    return render_duration(estimate.value)


def _describe_memory(offer: TrainingOffer) -> str:
    choice = offer.candidate.choice
    if choice.needed is None or not offer.candidate.gpus:
        return ""
    device = choice.step.topology.device
    needed = f"{render_bytes(choice.needed.value)} ({render_interval(choice.needed, render_bytes)})"
    usable = render_bytes(device.usable_memory_bytes)
    return (
        f"{needed} of the {usable} of each {device.name}; the chance that it does not fit is {render_risk(choice.risk)}"
    )


def describe_runs(advice: Advice) -> tuple[str, ...]:
    """What measured runs changed, and how far they narrowed the time of the pick's step."""
    said = describe_evidence(advice.combined, advice.number) if advice.combined is not None else ()
    return (*said, *(advice.made.warnings if advice.made is not None else ()))


def describe_first_answer(advice: Advice) -> str:
    """The time that was predicted before a run was made for this answer, and how far that narrowed it."""
    if advice.before is None:
        return ""
    before = advice.before.picked
    first, now = (each.offer.prediction.elapsed_s for each in (before, advice.picked))
    place = f" on {name_size(before)}"
    moved = "" if name_size(before) == name_size(advice.picked) else place
    return (
        f"{render_duration(first.value)} ({render_interval(first, render_duration)}){moved}: the upper bound was "
        f"{first.high / first.low:.2g} times the lower one, and is {now.high / now.low:.2g} times it now"
    )


def describe_runner_up(runner_up: RunnerUp) -> str:
    """What another offer would change."""
    offer = runner_up.offer
    currency = offer.offer.currency
    cheaper = "cheaper" if runner_up.cost_change < 0 else "dearer"
    time = _describe_time_change(runner_up)
    cost = f"{describe_money(abs(runner_up.cost_change), currency)} {cheaper}" if runner_up.cost_change else "same cost"
    layout = f" ({offer.candidate.choice.step.layout})" if offer.allocation.gpus else ""
    return f"{name_size(offer)}{layout}: {time}, {cost}"


def _describe_time_change(runner_up: RunnerUp) -> str:
    change_s = runner_up.time_change_s
    if abs(change_s) < (_SAME - 1) * runner_up.offer.time_s:
        return "about as quick"
    return f"{render_duration(abs(change_s))} {'quicker' if change_s < 0 else 'slower'}"


def name_size(offer: TrainingOffer) -> str:
    """``2 nodes of 4 GPUs of cardinal-gpu``."""
    return f"{name_amount(offer)} of {name_node(offer.allocation)}"


def name_amount(offer: TrainingOffer) -> str:
    """``1 GPU``, ``2 nodes of 4 GPUs``, ``16 cores``."""
    allocation = offer.allocation
    if not allocation.gpus:
        return count(allocation.cores, "core")
    each = count(allocation.gpus, "GPU")
    return each if allocation.nodes == 1 else f"{allocation.nodes} nodes of {each}"


def choose_rows(site: SiteAdvice, rows: int) -> list[TrainingOffer]:
    """The offers to show: the pick, the runner-up, the Pareto front, the best of each node type, then the next."""
    first = {id(each) for each in _list_best_of_nodes(site.offers)}
    runner_up = site.runner_up.offer if site.runner_up else None

    def rank(place: int) -> tuple[int, int]:
        offer = site.offers[place]
        if offer is site.picked or offer is runner_up:
            return 0, place
        return (1 if offer.offer.pareto else 2 if id(offer) in first else 3), place

    shown = sorted(sorted(range(len(site.offers)), key=rank)[:rows])
    return [site.offers[place] for place in shown]


def _list_best_of_nodes(offers: Sequence[TrainingOffer]) -> list[TrainingOffer]:
    best: dict[str | None, TrainingOffer] = {}
    for each in offers:
        best.setdefault(each.allocation.node_type, each)
    return list(best.values())


def _build_offers(site: SiteAdvice, shown: Sequence[TrainingOffer]) -> FirstThatFits | WordTable:
    """A line for each offer, or two where layouts have long names."""
    level = render_level(shown[0].offer.prediction.elapsed_s.level)
    if not any(each.allocation.gpus for each in site.offers):
        return _build_core_offers(site, shown, level)
    numbers = ("Step", "Memory", "Time", level, "Cost", "At most")
    wide = build_table("", "Node type", "GPUs", "Layout", *numbers, numbers=numbers, whole=("Layout", "Time", level))
    stacked = ("Step\nMemory", f"Time\n{level}", "Cost\nAt most")
    narrow = build_table("", "Node type\nLayout", "GPUs", *stacked, numbers=stacked, whole=(stacked[1],))
    for each in shown:
        style = GOOD if each is site.picked else "" if each.allowed else QUIET
        marks, node, layout = _render_marks(each, site), name_node(each.allocation), _name_layout(each)
        step, time, cost = _list_step(each), _list_time(each), (render_cost(each.offer), _render_most(each))
        add_cells(wide, marks, node, _render_size(each), layout, *step, *time, *cost, style=style)
        add_cells(narrow, marks, (node, layout), _render_size(each), step, time, cost, style=style)
    return FirstThatFits(wide, narrow)


def _build_core_offers(site: SiteAdvice, shown: Sequence[TrainingOffer], level: str) -> WordTable:
    """Without what only GPUs have: layouts, and how much of their memory is needed."""
    numbers = ("Cores", "Step", "Time", level, "Cost", "At most")
    table = build_table("", "Node type", *numbers, numbers=numbers, whole=("Time", level))
    for each in shown:
        style = GOOD if each is site.picked else "" if each.allowed else QUIET
        start = (_render_marks(each, site), name_node(each.allocation), str(each.allocation.cores))
        step = render_short_time(each.candidate.step.value)
        add_cells(table, *start, step, *_list_time(each), render_cost(each.offer), _render_most(each), style=style)
    return table


def _name_layout(offer: TrainingOffer) -> str:
    return str(offer.candidate.choice.step.layout)


def _list_step(offer: TrainingOffer) -> tuple[str, str]:
    return render_short_time(offer.candidate.step.value), _render_share(offer)


def _list_time(offer: TrainingOffer) -> tuple[str, str]:
    elapsed = offer.offer.prediction.elapsed_s
    return render_duration(elapsed.value), render_range(ELAPSED, elapsed)


def _render_most(offer: TrainingOffer) -> str:
    most = offer.offer.cost_at_request
    return render_most_money(most, offer.offer.currency) if most else ""


def _render_marks(offer: TrainingOffer, site: SiteAdvice) -> str:
    runner_up = site.runner_up is not None and offer is site.runner_up.offer
    first = ">" if offer is site.picked else "+" if runner_up else " " if offer.allowed else "!"
    return first + ("*" if offer.offer.pareto else " ")


def _render_size(offer: TrainingOffer) -> str:
    allocation = offer.allocation
    if not allocation.gpus:
        return count(allocation.cores, "core")
    return f"{allocation.nodes} x {allocation.gpus}" if allocation.nodes > 1 else str(allocation.gpus)


def _render_share(offer: TrainingOffer) -> str:
    """How much of the GPU's memory is needed."""
    choice = offer.candidate.choice
    if choice.needed is None or not offer.candidate.gpus:
        return ""
    return f"{choice.needed.value / choice.step.topology.device.usable_memory_bytes:.0%}".replace("%", " %")


def _build_rest(site: SiteAdvice, rows: int) -> Iterator[RenderableType]:
    left = len(site.offers) - rows
    if left > 0:
        yield Text(f"... and {count(left, 'other offer')}", style=QUIET)
    yield Text(f"{_LEGEND}\n", style=QUIET)


def _build_sites(advice: Advice) -> WordTable:
    """A line for each site that is compared."""
    numbers = ("Time", render_level(advice.level), "Cost")
    on_gpus = any(site.picked is not None and site.picked.allocation.gpus for site in advice.sites)
    size = ("GPUs", "Layout") if on_gpus else ("Cores",)
    table = build_table("", "Site", "Node type", *size, *numbers, numbers=numbers, whole=numbers[:2])
    for site in advice.sites:
        picked = site.picked
        if picked is None:
            add_cells(table, "", site.site.name, "none", *[""] * (len(size) + len(numbers)), style=QUIET)
            continue
        add_cells(
            table,
            ">" if site is advice.best else "",
            site.site.name,
            name_node(picked.allocation),
            *(_render_size(picked), str(picked.candidate.choice.step.layout))[: len(size)],
            render_duration(picked.time_s),
            render_range(ELAPSED, picked.offer.prediction.elapsed_s),
            render_cost(picked.offer),
            style=GOOD if site is advice.best else "",
        )
    return table


def _list_problems(advice: Advice) -> Iterator[str]:
    yield from list_obstacles(advice.best.obstacles)
    for site in advice.sites:
        if site.picked is None:
            yield f"{site.site.name}: {site.problem}"
            if not site.offers:
                yield from list_obstacles(site.obstacles, most=2)
