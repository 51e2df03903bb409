"""How values read, the same in the terminal, in plots and on the page."""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from foretell.core.app import Value
from foretell.core.model_card import Judgement, Scores
from foretell.core.prediction import Estimate, Offer, Rejection
from foretell.core.run import ESCAPE_SEQUENCE, Allocation, Run, State
from foretell.core.units import describe_money, render_bytes, render_duration, render_money, render_most_money

ELAPSED, MEMORY = "elapsed_s", "peak_memory_bytes"

SCORE_TITLES = ("MAE", "MAPE", "UPP", "OV_MAPE", "WTM", "Retry cost")
LEGEND = (
    "MAE, MAPE: mean error. UPP: share predicted too low. OV_MAPE: error of the others. "
    "WTM: both in one. Retry cost: requests doubled until they fit, against what the jobs took."
)

_UNITS: Mapping[str, tuple[tuple[str, float], ...]] = {
    ELAPSED: (("d", 86400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 0.001)),
    MEMORY: (("TB", 2**40), ("GB", 2**30), ("MB", 2**20), ("KB", 2**10), ("B", 1)),
}
_TITLES = {ELAPSED: "Time", MEMORY: "Peak memory"}
_RENDERERS: Mapping[str, Callable[[float], str]] = {ELAPSED: render_duration, MEMORY: render_bytes}
_OFF_A_DECIMAL = 99.95
_REASONS = 8
_PLACES = 4
_SCALES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3))
_SHORTEST_S = 5e-9  # shorter times are shown as 0


def clean_line(text: object) -> str:
    """One line that a terminal, a font and a file can hold: whatever controls a terminal is spelled out."""
    return "".join(character if _is_visible(character) else _spell_out(character) for character in str(text))


def clean_block(text: str) -> str:
    """The same for several lines, such as a log; colours and cursor movements of programs are left out."""
    lines = ESCAPE_SEQUENCE.sub("", text).expandtabs(4).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(clean_line(line) for line in lines).strip("\n")


def _is_visible(character: str) -> bool:
    return character == " " or not unicodedata.category(character).startswith(("C", "Zl", "Zp"))


def _spell_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def title_quantity(quantity: str) -> str:
    return _TITLES.get(quantity, clean_line(quantity))


def render_quantity(quantity: str, value: float) -> str:
    return _RENDERERS.get(quantity, "{:.4g}".format)(value)


def render_percent(value: float) -> str:
    """``4.2 %``, ``140 %``."""
    return f"{value:.1f} %" if abs(value) < _OFF_A_DECIMAL else f"{value:,.0f} %"


def render_risk(risk: float) -> str:
    """A chance, never as a certainty: ``< 1 %``, ``4 %``, ``> 99 %``."""
    if risk < 0.01:
        return "< 1 %"
    return f"{risk:.0%}".replace("%", " %") if risk <= 0.99 else "> 99 %"


def render_level(level: float) -> str:
    return f"{100 * level:g} %"


def render_interval(estimate: Estimate, render: Callable[[float], str]) -> str:
    """``4 min 10 s to 6 min 00 s``."""
    return f"{render(estimate.low)} to {render(estimate.high)}"


def render_range(quantity: str, estimate: Estimate) -> str:
    """``43-61 min``, for where there is little room; ``36 s-2.7 h`` where the lower bound is far below the upper."""
    if not math.isfinite(estimate.high - estimate.low):
        return render_interval(estimate, _RENDERERS[quantity])
    name, size = _find_unit(quantity, estimate.high)
    low, high = _render_bound(estimate.low / size), _render_bound(estimate.high / size)
    if float(low) == 0 and estimate.low > 0:
        own_name, own_size = _find_unit(quantity, estimate.low)
        return f"{_render_bound(estimate.low / own_size)} {own_name}-{high} {name}"
    return f"{low}-{high} {name}"


def _find_unit(quantity: str, value: float) -> tuple[str, float]:
    units = _UNITS[quantity]
    return next((unit for unit in units if value >= 1.5 * unit[1]), units[-1])


def _render_bound(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def count(number: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def render_parameters(parameters: Mapping[str, Value]) -> str:
    """``epochs=100 batch_size=64``."""
    return clean_line(" ".join(f"{name}={_render_value(value)}" for name, value in parameters.items()))


def _render_value(value: Value) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def render_size(allocation: Allocation) -> str:
    """``2 nodes, each 40 cores, 2 GPUs``."""
    gpus = f", {count(allocation.gpus, 'GPU')}" if allocation.gpus else ""
    one = f"{count(allocation.cores, 'core')}{gpus}"
    return one if allocation.nodes == 1 else f"{allocation.nodes} nodes, each {one}"


def name_node(allocation: Allocation) -> str:
    return clean_line(allocation.node_type or allocation.partition or "-")


def name_place(allocation: Allocation) -> str:
    """The node type, with its partition where that has another name."""
    names = dict.fromkeys(name for name in (allocation.node_type, allocation.partition) if name)
    return clean_line(" / ".join(names)) or "-"


def render_cost(offer: Offer) -> str:
    return render_money(offer.cost, clean_line(offer.currency)) if offer.cost else "free"


def describe_request(offer: Offer) -> str:
    """The picked request as a sentence without its end."""
    allocation, request = offer.allocation, offer.prediction.request
    memory = "" if request.memory_bytes is None else f" and {render_bytes(request.memory_bytes)} of memory"
    each = " on each node" if allocation.nodes > 1 and memory else ""
    place, site = name_place(allocation), clean_line(offer.site)
    where = f"on {place} at {site}" if place != site else f"on {place}"
    return f"{render_size(allocation)}{memory}{each} {where} for {render_duration(request.walltime_s)}"


def describe_outcome(offer: Offer) -> str:
    """What is to be expected of an offer, as a sentence without its end."""
    elapsed = offer.prediction.elapsed_s
    expected = (
        f"It should take {render_duration(elapsed.value)} "
        f"({render_level(elapsed.level)}: {render_interval(elapsed, render_duration)})"
    )
    risk = f"the chance that the request is too small is {render_risk(offer.risk)}"
    if not offer.cost:
        return f"{expected} and is free; {risk}"
    most = render_most_money(offer.cost_at_request, clean_line(offer.currency))
    return f"{expected} and cost {describe_money(offer.cost, clean_line(offer.currency))} (at most {most}); {risk}"


def describe_evidence(judgement: Judgement) -> str:
    """What a model was learned from."""
    limited = f", {judgement.censored_rows:,} stopped by a limit" if judgement.censored_rows else ""
    return f"Learned from {count(judgement.rows, 'run')}: {judgement.full_scale_rows:,} full scale{limited}"


def describe_expectation(judgement: Judgement) -> str:
    """The error to expect on runs nobody has made, from rows that neither the fit nor the choice saw."""
    expected = judgement.expected
    return (
        f"On unseen runs, expect to be off by {render_quantity(judgement.quantity, expected.mae)} on average "
        f"({render_percent(expected.mape)}), half the time by less than {render_percent(expected.median_ape)}; "
        f"{render_percent(expected.upp)} of the predictions were too low{_describe_between(judgement)}"
    )


def _describe_between(judgement: Judgement) -> str:
    if judgement.between is None:
        return ""
    typical = render_percent(judgement.between.median_ape)
    return f". For values between those measured, half the time by less than {typical}"


def list_scores(scores: Scores, quantity: str) -> tuple[str, ...]:
    """MAE, MAPE, UPP, OV_MAPE, WTM and retry cost, each with its unit."""
    percents = (scores.mape, scores.upp, scores.ov_mape, scores.wtm)
    return (render_quantity(quantity, scores.mae), *map(render_percent, percents), f"{scores.retry_cost:.3g} x")


def name_state(state: State) -> str:
    return state.value.replace("_", " ")


def explain_failure(run: Run) -> str:
    """Why a run did not complete, in one line."""
    code = "" if run.exit_code is None else f"exit code {run.exit_code}"
    return clean_line(run.reason or code or name_state(run.state))


def render_time(run: Run) -> str:
    if run.usage is None:
        return ""
    longer = "> " if run.state is State.TIMED_OUT else ""
    return longer + render_duration(run.usage.elapsed_s)


def render_memory(run: Run) -> str:
    peak = run.usage.peak_memory_bytes if run.usage else None
    return "" if peak is None else render_bytes(peak)


def group_rejections(rejections: Iterable[Rejection]) -> list[str]:
    """A line for each reason, with the allocations it rules out; only as many as are read."""
    groups = defaultdict(list)
    for rejection in rejections:
        groups[rejection.reason].append(f"{name_node(rejection.allocation)} with {render_size(rejection.allocation)}")
    lines = [f"{_name_places(places)}: {clean_line(reason)}" for reason, places in groups.items()]
    more = len(lines) - _REASONS
    return [*lines[:_REASONS], *([f"and for {count(more, 'other reason')}"] if more > 0 else [])]


def _name_places(places: Sequence[str]) -> str:
    left = len(places) - _PLACES
    return "; ".join(places[:_PLACES]) + (f" and {left:,} more" if left > 0 else "")


def render_short_time(seconds: float) -> str:
    """Three digits: ``15.2 µs``, ``1.24 ms``, ``12.4 s``; a minute and more as a duration."""
    if seconds >= 59.95 or seconds != seconds:
        return render_duration(seconds)
    name, size = next(
        ((name, size) for name, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= 0.9995 * size), ("µs", 1e-6)
    )
    value = seconds / size
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {name}" if seconds >= _SHORTEST_S else "0"


def render_scaled(number: float) -> str:
    """``4.1 G``, ``25.6 M``, ``12``."""
    name, size = next(((name, size) for name, size in _SCALES if number >= 0.9995 * size), ("", 1.0))
    return f"{number / size:.3g} {name}".strip()
