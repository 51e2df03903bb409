"""What drives a prediction, in a few sentences for the terminal."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from foretell.core.app import Value
from foretell.core.model_card import Judgement, LeaderboardRow, ModelCard
from foretell.core.prediction import Estimate, Prediction, Request
from foretell.core.render.phrases import (
    ELAPSED,
    LEGEND,
    MEMORY,
    SCORE_TITLES,
    count,
    describe_evidence,
    describe_expectation,
    list_scores,
    render_interval,
    render_level,
    render_parameters,
    render_quantity,
    render_range,
    render_size,
    title_quantity,
)
from foretell.core.render.tables import (
    GOOD,
    HEADING,
    QUIET,
    FirstThatFits,
    add_cells,
    build_facts,
    build_line,
    build_notes,
    build_table,
    build_warnings,
    stack,
)
from foretell.core.serialization import Record, build_record
from foretell.core.units import render_bytes, render_duration

if TYPE_CHECKING:
    from foretell.runtimes.explanation import Contribution, Driver, Explanation, Piece, QuantityExplanation, Source


def build_prediction_record(prediction: Prediction) -> Record:
    """Estimates as ``value``, ``low``, ``high`` and ``level``; ``request`` as the policy would ask for it."""
    return build_record(prediction)


def build_explanation_record(explanation: "Explanation") -> Record:
    """For time and memory: drivers with their curves, contributions and sources of uncertainty, largest first."""
    return build_record(explanation)


def build_card_record(card: ModelCard) -> Record:
    """A leaderboard for each quantity, with the error to expect of its winner."""
    return build_record(card)


_MOST_NAMED = 5
_FLAT = 0.05
_TWO_DECIMALS = 0.095  # below it, one decimal says nothing


def render_explanation(explanation: "Explanation") -> Group:
    """What is expected, what it grows with, how it differs from the usual run, and where the uncertainty comes from."""
    time, memory = explanation.elapsed_s, explanation.peak_memory_bytes
    return stack(
        _build_heading(explanation),
        build_line(f"{_describe_estimate(time)}."),
        build_line(f"{describe_drivers(time)}."),
        build_line(f"{describe_drivers(memory)}.") if memory else None,
        build_line(f"{_describe_difference(explanation)}."),
        build_line(f"{describe_sources(time)}."),
    )


def _build_heading(explanation: "Explanation") -> Text:
    words = f"{explanation.app}: {render_parameters(explanation.parameters)} on {render_size(explanation.allocation)}"
    heading = build_line(words, HEADING)
    heading.no_wrap, heading.overflow = True, "ellipsis"
    return heading


def _describe_estimate(quantity: "QuantityExplanation") -> str:
    estimate = quantity.estimate
    bounds = render_interval(estimate, lambda value: render_quantity(quantity.quantity, value))
    value = render_quantity(quantity.quantity, estimate.value)
    return f"{title_quantity(quantity.quantity)}: {value} ({render_level(estimate.level)}: {bounds})"


def describe_drivers(quantity: "QuantityExplanation") -> str:
    """``Time grows with epochs^1.0 and batch_size^-0.4; with cores^-0.9 up to 8, then flat``."""
    title, drivers = title_quantity(quantity.quantity), quantity.drivers
    if not drivers:
        return f"{title} hardly depends on anything that was varied"
    shown, left = drivers[:_MOST_NAMED], len(drivers) - _MOST_NAMED
    straight = [_render_power(driver, driver.pieces[0]) for driver in shown if len(driver.pieces) == 1]
    clauses = [
        *([f"grows with {_join(straight)}"] if straight else []),
        *(f"with {_describe_bend(driver)}" for driver in shown if len(driver.pieces) > 1),
        *(_describe_step(driver) for driver in shown if not driver.pieces),
        *([f"{left} more matter less"] if left > 0 else []),
    ]
    clauses[0] = f"grows {clauses[0]}" if clauses[0].startswith("with ") else clauses[0]
    return f"{title} {'; '.join(clauses)}"


def _describe_bend(driver: "Driver") -> str:
    """``cores^-0.9 up to 8, then flat``."""
    first, *others = driver.pieces
    start = f"{_render_piece(driver, first)} up to {first.high:.4g}"
    return ", then ".join([start, *(_render_piece(driver, piece) for piece in others)])


def _render_piece(driver: "Driver", piece: "Piece") -> str:
    return "flat" if abs(piece.exponent) < _FLAT else _render_power(driver, piece)


def _render_power(driver: "Driver", piece: "Piece") -> str:
    exponent = piece.exponent
    return f"{driver.name}^{exponent:.1f}" if abs(exponent) >= _TWO_DECIMALS else f"{driver.name}^{exponent:.2f}"


def _describe_step(driver: "Driver") -> str:
    """``is 3.1 x from dataset = mnist to cifar``."""
    least, most = _render_value(driver.least), _render_value(driver.most)
    return f"is {_render_factor(driver.effect)} from {driver.name} = {least} to {most}"


def _describe_difference(explanation: "Explanation") -> str:
    time = explanation.elapsed_s
    usual = render_quantity(time.quantity, time.usual.value)
    if not time.contributions:
        return f"This is the usual run, or takes as long as it ({usual})"
    shown = time.contributions[:_MOST_NAMED]
    parts = _join([_describe_contribution(contribution) for contribution in shown])
    return f"Against the usual run ({usual}): {parts}"


def _describe_contribution(contribution: "Contribution") -> str:
    """``25 x by epochs = 100 instead of 4 (84 %)``."""
    factor, share = _render_factor(contribution.factor), _render_share(contribution.share)
    if contribution.value == "" == contribution.usual:  # several values together, or a machine
        return f"{factor} by {contribution.name} ({share})"
    asked, usual = _render_value(contribution.value), _render_value(contribution.usual)
    return f"{factor} by {contribution.name} = {asked} instead of {usual} ({share})"


def describe_sources(quantity: "QuantityExplanation") -> str:
    """``62 % of the uncertainty is cores = 48, never run (runs had 1 to 16); 38 % is noise and model error``."""
    *outside, inside = quantity.sources
    if not outside:
        return f"All values lie within the runs: the uncertainty is {inside.name}"
    first, *others = [*outside[:_MOST_NAMED], inside]
    words = [f"{_render_share(source.share)} is {_describe_source(source)}" for source in others]
    return "; ".join([f"{_render_share(first.share)} of the uncertainty is {_describe_source(first)}", *words])


def _describe_source(source: "Source") -> str:
    from foretell.runtimes.explanation import INSIDE, MACHINE  # predictions do without it

    if source.name == INSIDE:
        return INSIDE
    if source.name == MACHINE:
        return "another machine than any run's"
    return f"{source.name} = {_render_value(source.value)}, never run (runs had {source.measured})"


def _render_share(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def _render_factor(factor: float) -> str:
    return f"{factor:.3g} x" if factor < 1000 else f"{factor:,.0f} x"


def _render_value(value: Value | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _join(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


_ROWS_NAMED = 4
_WORTH_A_WORD = 1.1  # times the first request: a next one that is hardly larger only confuses


def render_predictions(predictions: Sequence[Prediction]) -> Group:
    """One prediction as a card, several as a table with their warnings below."""
    if len(predictions) == 1:
        return stack(_build_card(predictions[0]))
    level = render_level(predictions[0].elapsed_s.level) if predictions else ""
    return stack(
        _build_prediction_table(predictions),
        Text(f"between: holds {level} of the time", style=QUIET) if predictions else None,
        *build_notes("Warnings", _list_warnings(predictions)),
    )


def _build_card(prediction: Prediction) -> Panel:
    facts = build_facts(
        [
            ("Time", _render_estimate(prediction.elapsed_s)),
            ("Peak memory", _render_memory(prediction.peak_memory_bytes)),
            ("Ask for", _render_request(prediction.request)),
            *_list_both_estimates(prediction),
            *((f"Phase {name}", _render_estimate(phase)) for name, phase in prediction.phases.items()),
        ]
    )
    title = build_line(f" {render_parameters(prediction.parameters)} on {render_size(prediction.allocation)} ", HEADING)
    content = stack(facts, *build_warnings(prediction.warnings))
    return Panel(content, title=title, title_align="left", box=box.ROUNDED, border_style=QUIET, expand=False)


def _list_both_estimates(prediction: Prediction) -> list[tuple[str, str]]:
    """The whole and the sum of phases, where there are two to compare."""
    if prediction.custom is None:
        return []
    chosen = prediction.elapsed_s == prediction.custom
    marks = ("", " (taken)") if chosen else (" (taken)", "")
    return [
        ("Basic estimate", _render_estimate(prediction.basic) + marks[0]),
        ("Custom estimate", _render_estimate(prediction.custom) + marks[1]),
    ]


def _render_estimate(estimate: Estimate) -> str:
    return _render_bounded(estimate, render_duration)


def _render_memory(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not known: too few runs measured it"
    return _render_bounded(estimate, render_bytes)


def _render_bounded(estimate: Estimate, render: Callable[[float], str]) -> str:
    return f"{render(estimate.value)} ({render_level(estimate.level)}: {render_interval(estimate, render)})"


def _render_request(request: Request) -> str:
    first = [render_duration(request.walltime_s)]
    second = _render_larger(request.walltime_s, request.retries_walltime_s, render_duration)
    if request.memory_bytes is not None:
        first.append(render_bytes(request.memory_bytes))
        second += _render_larger(request.memory_bytes, request.retries_memory, render_bytes)
    asked = " and ".join(first)
    return f"{asked}; if too small, {' and '.join(second)}" if second else asked


def _render_larger(first: float, retries: Sequence[float], render: Callable[[float], str]) -> list[str]:
    """The next try, where it is enough larger to be worth a word."""
    return [render(retry) for retry in retries[:1] if retry >= _WORTH_A_WORD * first and render(retry) != render(first)]


def _build_prediction_table(predictions: Sequence[Prediction]) -> FirstThatFits:
    columns = ("Time", "between", "ask for", "Memory", "between", "ask for")
    wide = build_table("#", "Parameters", "Size", *columns, numbers=("#", *columns), whole=columns)
    stacked = ("Time\nMemory", "between", "ask for")
    narrow = build_table("#", "Parameters", "Size", *stacked, numbers=("#", *stacked))
    for number, prediction in enumerate(predictions, start=1):
        names = str(number), render_parameters(prediction.parameters), render_size(prediction.allocation)
        time, memory = _list_time_cells(prediction), _list_memory_cells(prediction)
        add_cells(wide, *names, *time, *memory)
        add_cells(narrow, *names, *zip(time, memory, strict=True))
    return FirstThatFits(wide, narrow)


def _list_time_cells(prediction: Prediction) -> tuple[str, str, str]:
    elapsed, walltime_s = prediction.elapsed_s, prediction.request.walltime_s
    return render_duration(elapsed.value), render_range(ELAPSED, elapsed), render_duration(walltime_s)


def _list_memory_cells(prediction: Prediction) -> tuple[str, str, str]:
    memory, asked = prediction.peak_memory_bytes, prediction.request.memory_bytes
    return (
        "unknown" if memory is None else render_bytes(memory.value),
        "" if memory is None else render_range(MEMORY, memory),
        "" if asked is None else render_bytes(asked),
    )


def _list_warnings(predictions: Iterable[Prediction]) -> list[str]:
    rows = defaultdict(list)
    for number, prediction in enumerate(predictions, start=1):
        for warning in prediction.warnings:
            rows[warning].append(number)
    return [f"{_number_rows(numbers)}: {warning.text}" for warning, numbers in rows.items()]


def _number_rows(numbers: Sequence[int]) -> str:
    shown = ", ".join(f"#{number}" for number in numbers[:_ROWS_NAMED])
    return shown if len(numbers) <= _ROWS_NAMED else f"{shown} and {len(numbers) - _ROWS_NAMED:,} more"


def render_leaderboard(judgement: Judgement, *, rows: int | None = 12) -> Group:
    """The candidates for one quantity, best first, the winner and why, and the error to expect of it."""
    board = judgement.leaderboard
    shown = _list_shown(judgement, rows)
    title = f"{title_quantity(judgement.quantity)}: {count(len(board), 'candidate')}, best by {judgement.policy} first"
    left = len(board) - len(shown)
    return stack(
        build_line(title, HEADING),
        _build_board(judgement, shown),
        Text(f"... and {count(left, 'other')}", style=QUIET) if left else None,
        build_line(f"Winner: {judgement.why}.", GOOD),
        build_line(f"{describe_expectation(judgement)}."),
        build_line(f"{describe_evidence(judgement)}."),
    )


def _list_shown(judgement: Judgement, rows: int | None) -> list[LeaderboardRow]:
    """The first rows, and the winner where it comes later."""
    board = judgement.leaderboard
    later = board[rows:] if rows is not None else ()
    return [*board[:rows], *(standing for standing in later if standing.candidate == judgement.winner)]


def _build_board(judgement: Judgement, standings: Sequence[LeaderboardRow]) -> Table:
    table = build_table("", "Candidate", *SCORE_TITLES, numbers=SCORE_TITLES)
    for standing in standings:
        won = standing.candidate == judgement.winner
        scores = list_scores(standing.scores, judgement.quantity)
        add_cells(table, ">" if won else "", standing.candidate, *scores, style="bold" if won else "")
    return table


def render_model_card(card: ModelCard, *, rows: int | None = 12) -> Group:
    """A leaderboard for each quantity, then warnings."""
    boards = [part for judgement in card.judgements.values() for part in (render_leaderboard(judgement, rows=rows), "")]
    return Group(*boards, Text(LEGEND, style=QUIET), *build_warnings(card.warnings))
