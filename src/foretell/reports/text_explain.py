"""What drives a prediction, in a few sentences for the terminal."""

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from foretell.entities.app import Value
from foretell.entities.explanation import (
    INSIDE,
    MACHINE,
    Contribution,
    Driver,
    Explanation,
    Piece,
    QuantityExplanation,
    Source,
)
from foretell.reports.tables import HEADING, build_line, stack
from foretell.reports.words import (
    render_interval,
    render_level,
    render_parameters,
    render_quantity,
    render_size,
    title_quantity,
)

_MOST_NAMED = 5
_FLAT = 0.05
_TWO_DECIMALS = 0.095  # below it, one decimal says nothing


def render_explanation(explanation: Explanation) -> Group:
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


def _build_heading(explanation: Explanation) -> Text:
    words = f"{explanation.app}: {render_parameters(explanation.parameters)} on {render_size(explanation.allocation)}"
    heading = build_line(words, HEADING)
    heading.no_wrap, heading.overflow = True, "ellipsis"
    return heading


def _describe_estimate(quantity: QuantityExplanation) -> str:
    estimate = quantity.estimate
    bounds = render_interval(estimate, lambda value: render_quantity(quantity.quantity, value))
    value = render_quantity(quantity.quantity, estimate.value)
    return f"{title_quantity(quantity.quantity)}: {value} ({render_level(estimate.level)}: {bounds})"


def describe_drivers(quantity: QuantityExplanation) -> str:
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


def _describe_bend(driver: Driver) -> str:
    """``cores^-0.9 up to 8, then flat``."""
    first, *others = driver.pieces
    start = f"{_render_piece(driver, first)} up to {first.high:.4g}"
    return ", then ".join([start, *(_render_piece(driver, piece) for piece in others)])


def _render_piece(driver: Driver, piece: Piece) -> str:
    return "flat" if abs(piece.exponent) < _FLAT else _render_power(driver, piece)


def _render_power(driver: Driver, piece: Piece) -> str:
    exponent = piece.exponent
    return f"{driver.name}^{exponent:.1f}" if abs(exponent) >= _TWO_DECIMALS else f"{driver.name}^{exponent:.2f}"


def _describe_step(driver: Driver) -> str:
    """``is 3.1 x from dataset = mnist to cifar``."""
    least, most = _render_value(driver.least), _render_value(driver.most)
    return f"is {_render_factor(driver.effect)} from {driver.name} = {least} to {most}"


def _describe_difference(explanation: Explanation) -> str:
    time = explanation.elapsed_s
    usual = render_quantity(time.quantity, time.usual.value)
    if not time.contributions:
        return f"This is the usual run, or takes as long as it ({usual})"
    shown = time.contributions[:_MOST_NAMED]
    parts = _join([_describe_contribution(contribution) for contribution in shown])
    return f"Against the usual run ({usual}): {parts}"


def _describe_contribution(contribution: Contribution) -> str:
    """``25 x by epochs = 100 instead of 4 (84 %)``."""
    factor, share = _render_factor(contribution.factor), _render_share(contribution.share)
    if contribution.value == "" == contribution.usual:  # several values together, or a machine
        return f"{factor} by {contribution.name} ({share})"
    asked, usual = _render_value(contribution.value), _render_value(contribution.usual)
    return f"{factor} by {contribution.name} = {asked} instead of {usual} ({share})"


def describe_sources(quantity: QuantityExplanation) -> str:
    """``62 % of the uncertainty is cores = 48, never run (runs had 1 to 16); 38 % is noise and model error``."""
    *outside, inside = quantity.sources
    if not outside:
        return f"All values lie within the runs: the uncertainty is {INSIDE}"
    first, *others = [*outside[:_MOST_NAMED], inside]
    words = [f"{_render_share(source.share)} is {_describe_source(source)}" for source in others]
    return "; ".join([f"{_render_share(first.share)} of the uncertainty is {_describe_source(first)}", *words])


def _describe_source(source: Source) -> str:
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
