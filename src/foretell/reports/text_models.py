"""What building a model found, for the terminal."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from foretell.entities.learned import Judgement, ModelCard, Standing
from foretell.reports.tables import GOOD, HEADING, QUIET, add_cells, build_line, build_notes, build_table, stack
from foretell.reports.words import (
    LEGEND,
    SCORE_TITLES,
    count,
    describe_evidence,
    describe_expectation,
    list_scores,
    title_quantity,
)


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


def _list_shown(judgement: Judgement, rows: int | None) -> list[Standing]:
    """The first rows, and the winner where it comes later."""
    board = judgement.leaderboard
    later = board[rows:] if rows is not None else ()
    return [*board[:rows], *(standing for standing in later if standing.candidate == judgement.winner)]


def _build_board(judgement: Judgement, standings: Sequence[Standing]) -> Table:
    table = build_table("", "Candidate", *SCORE_TITLES, numbers=SCORE_TITLES)
    for standing in standings:
        won = standing.candidate == judgement.winner
        scores = list_scores(standing.scores, judgement.quantity)
        add_cells(table, ">" if won else "", standing.candidate, *scores, style="bold" if won else "")
    return table


def render_model_card(card: ModelCard, *, rows: int | None = 12) -> Group:
    """A leaderboard for each quantity, then what there is to note."""
    boards = [part for judgement in card.judgements.values() for part in (render_leaderboard(judgement, rows=rows), "")]
    return Group(*boards, Text(LEGEND, style=QUIET), *build_notes("Notes", card.notes))
