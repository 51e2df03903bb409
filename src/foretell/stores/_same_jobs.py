"""Which stored job an imported one is, when the two come from texts that do not tell the same of it."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from foretell.entities.history import JobRow

Stored = tuple[Any, ...]
"""A row of the table: the number of its cluster, then the fields of a :class:`JobRow`."""

_FIELDS = ("cluster", *JobRow._fields)
CLUSTER, JOB, TASK, SUBMITTED, KIND, STATE, STARTED, ENDED, ELAPSED = (
    _FIELDS.index(name)
    for name in ("cluster", "job", "task", "submitted_at", "kind", "state", "started_at", "ended_at", "elapsed_s")
)
KEY = slice(CLUSTER, SUBMITTED + 1)


class Match(NamedTuple):
    """The stored rows that are the imported job; ``decided`` is false where they may be several jobs."""

    rows: Sequence[Stored]
    decided: bool = True


def find_same(new: Stored, stored: Sequence[Stored], *, unknown_cluster: int | None) -> Match:
    """Which of the stored rows, all with the id and task of a new one, are the same attempt of the same job.

    An attempt is known by its submission, or by its start where the submission is not given. Without either, its
    elapsed time and its state must agree. A cluster that is not given may be any.
    """
    same = [row for row in stored if row[KEY] == new[KEY] or (row[SUBMITTED] == new[SUBMITTED] != 0)]
    if not same and new[STARTED]:
        same = [row for row in stored if row[STARTED] == new[STARTED]]
    if same:
        return Match(same, decided=_count_clusters(same, unknown_cluster) <= 1)
    timeless = [row for row in stored if 0 in (row[SUBMITTED], new[SUBMITTED])]
    alike = [row for row in timeless if (row[ELAPSED], row[STATE]) == (new[ELAPSED], new[STATE])]
    return Match(alike, decided=len(alike) <= 1)


def _count_clusters(rows: Sequence[Stored], unknown: int | None) -> int:
    return len({row[CLUSTER] for row in rows} - {unknown})


def merge(
    new: Stored, old: Sequence[Stored], *, unknown_cluster: int | None, missing: Collection[str], kind: int
) -> Stored:
    """One row of what a text and the store know of a job: the newer value, but never "unknown" in place of a value."""
    merged = list(new)
    for row in old:
        for place, name in enumerate(_FIELDS):
            if merged[place] is None or name in missing:
                merged[place] = row[place]
    known = [row[CLUSTER] for row in (new, *old) if row[CLUSTER] != unknown_cluster]
    merged[CLUSTER] = known[0] if known else new[CLUSTER]
    # Where only the start was given it was taken for the submission, which is never later.
    merged[SUBMITTED] = min((row[SUBMITTED] for row in (new, *old) if row[SUBMITTED]), default=0)
    merged[KIND] = kind
    return tuple(merged)
