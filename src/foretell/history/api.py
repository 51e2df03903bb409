"""The functions that import accounting, group jobs into applications and report waste."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from foretell.core.errors import ImportDataError
from foretell.core.past_jobs import Assignment, HistoryApp, HistoryImport, JobKind, JobRows, Mark, WasteReport
from foretell.core.site import Site
from foretell.history.accounting_lines import Complaints, Layout, read_lines
from foretell.history.accounting_sources import FIELDS, Query, open_file, print_file, read_blocks, read_head
from foretell.history.grouping import Rules, load_rules, parse_rules
from foretell.history.job_folding import Folder
from foretell.history.waste import COLUMNS, find_waste
from foretell.stores.job_history import JobFilter, JobHistory
from foretell.stores.opening import StoreLike, using_store

_BATCH = 20_000
_RULES = "rules"
UNDECIDED = "several stored jobs could be it; give the columns Cluster, Submit and Start, or name the cluster"
_EPOCH = datetime(1970, 1, 1)
_LARGEST = 2**63 - 1  # how far a file was read
_DEFAULT_SPAN = timedelta(days=365)


def import_history(
    sources: Sequence[str | Path] = (),
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    users: Collection[str] = (),
    all_users: bool = False,
    cluster: str | None = None,
    rules: str | Path | None = None,
    store: StoreLike = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> HistoryImport:
    """Read saved ``sacct --parsable2`` files (``-`` is standard input) or, without any, call sacct.

    Importing the same jobs again changes nothing, and files are not read twice. ``cluster`` is the cluster to query, or
    that of files without a cluster column. ``rules`` become those of the store.

    Raises:
        ImportDataError: if a file is not output of sacct, or cannot be read.
        SchedulerError: if sacct is not found, or does not respond.
        SpecError: with every mistake in the rules.
        NotFoundError: if a file does not exist.
    """
    with using_store(store, create=True) as opened:
        history = JobHistory(opened)
        reader = _Importer(
            history=history, rules=_find_rules(rules, history), cluster=cluster or "", report=on_progress
        )
        if sources:
            for source in sources:
                reader.read_file(str(source))
        else:
            now = datetime.now().replace(microsecond=0)
            query = Query(users=tuple(users), all_users=all_users, cluster=cluster)
            reader.ask(query, since or now - _DEFAULT_SPAN, until or now, now=now)
        return reader.result


def group_history(
    rules: str | Path | None, *, store: StoreLike = None, on_progress: Callable[[str], None] = lambda _: None
) -> list[HistoryApp]:
    """Group all jobs of the store again, by rules that later imports use too; ``None``: by their texts alone.

    Raises:
        SpecError: with every mistake in the rules.
        NotFoundError: if there is no such file.
    """
    with using_store(store) as opened:
        history = JobHistory(opened)
        text = "" if rules is None else load_rules(Path(rules))
        found = parse_rules(text, source=str(rules)) if text else Rules()
        done = 0
        for page in history.kinds():
            history.assign({number: found.assign(kind) for number, kind, _ in page})
            done += len(page)
            on_progress(f"{done:,} kinds of jobs")
        history.set_mark(_RULES, text)
        return history.apps()


def list_history_apps(*, store: StoreLike = None) -> list[HistoryApp]:
    """Return the applications of the history, those with most jobs first."""
    with using_store(store) as opened:
        return JobHistory(opened).apps()


def report_waste(
    *,
    by: str = "user",
    user: str | None = None,
    account: str | None = None,
    app: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    site: Site | None = None,
    store: StoreLike = None,
) -> WasteReport:
    """Return what jobs requested and used, its cost by a site's prices, and what smaller requests would have cost.

    Raises:
        ImportDataError: if there are no matching jobs.
    """
    chosen = JobFilter(user=user, account=account, app=app, since=_seconds(since), until=_seconds(until))
    with using_store(store) as opened:
        columns = JobHistory(opened).read(chosen, COLUMNS)
    if not len(columns["elapsed_s"]):
        raise ImportDataError("no job of the history matches; 'foretell history import' reads them from accounting")
    return find_waste(columns, by=by, site=site)


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(seconds=1)


def _find_rules(path: str | Path | None, history: JobHistory) -> Rules:
    """Return the rules of a file, which become the store's; or those of the store."""
    if path is not None:
        text = load_rules(Path(path))
        history.set_mark(_RULES, text)
    else:
        text = history.find_mark(_RULES) or ""
    return parse_rules(text, source="the store's rules") if text else Rules()


@dataclass
class _Importer:
    """Imports texts into the store, some thousand jobs in each transaction, and counts them."""

    history: JobHistory
    rules: Rules
    cluster: str
    report: Callable[[str], None]
    complaints: Complaints = field(default_factory=Complaints)
    sources: list[str] = field(default_factory=list)
    lines: int = 0
    jobs: int = 0
    changed: int = 0
    unfinished: int = 0
    read_before: int = 0

    @property
    def result(self) -> HistoryImport:
        return HistoryImport(
            sources=tuple(self.sources),
            lines=self.lines,
            jobs=self.jobs,
            changed=self.changed,
            unfinished=self.unfinished,
            read_before=self.read_before,
            complaints=tuple(self.complaints.found.values()),
        )

    def read_file(self, source: str) -> None:
        """Import a saved text, from where an earlier import stopped."""
        printed = print_file(source)
        key = None if printed is None else f"{printed} cluster={self.cluster}"
        self.sources.append(source)
        with open_file(source) as file:
            layout = read_head(file, source=source)
            start = Mark(position=file.tell() if file.seekable() else 0, lines=1)
            left = self._find_mark(key)
            if left is not None and left.position > start.position:
                file.seek(left.position)
                self.read_before += left.lines
                start = left
            self._read(read_blocks(file), layout, start, key)

    def ask(self, query: Query, since: datetime, until: datetime, *, now: datetime) -> None:
        """Import the output of sacct, window by window, without those imported before."""
        self.sources.append("sacct")
        for window in query.list_windows(since, until):
            if self.history.find_mark(window.key) is not None:
                self.read_before += 1
                continue
            self.report(f"{window.start:%Y-%m-%d}")
            left_out = self.complaints.total
            with window.open() as blocks:
                self._read(blocks, Layout(FIELDS), Mark(), None)
            if window.is_past(now) and self.complaints.total == left_out:
                self.history.set_mark(window.key, "read")

    def _read(self, blocks: Iterator[bytes], layout: Layout, start: Mark, key: str | None) -> None:
        folder = Folder(layout, self.complaints, cluster=self.cluster, raw_ids=self.history.has_raw_ids())
        waiting: list[JobRows] = []
        upto, left_out = start, self.complaints.total
        for lines in read_lines(blocks, layout, self.complaints, start=start):
            waiting += folder.fold(lines)
            upto = lines.upto
            if sum(len(rows.rows) for rows in waiting) >= _BATCH:
                self._keep(waiting, self._build_marks(key, upto, left_out))
                waiting = []
        self._keep(waiting, self._build_marks(key, upto, left_out))
        self.lines += upto.lines - start.lines
        self.unfinished += folder.unfinished

    def _build_marks(self, key: str | None, upto: Mark, left_out: int) -> dict[str, str]:
        """Return how far a file was read. Lines that were not understood are read again by later versions."""
        return {key: _render_mark(upto)} if key is not None and self.complaints.total == left_out else {}

    def _keep(self, waiting: Sequence[JobRows], marks: Mapping[str, str]) -> None:
        kinds: dict[int, JobKind] = {}
        for rows in waiting:
            kinds |= rows.kinds
        assignments: dict[int, Assignment] = {number: self.rules.assign(kind) for number, kind in kinds.items()}
        added = self.history.add(waiting, assignments, marks)
        self.changed += added.changed
        self.jobs += sum(len(rows.rows) for rows in waiting) - added.undecided
        if added.undecided:
            self.complaints.add(UNDECIDED, count=added.undecided)
        self.report(f"{self.jobs:,} jobs")

    def _find_mark(self, key: str | None) -> Mark | None:
        text = self.history.find_mark(key) if key is not None else None
        return None if text is None else _parse_mark(text)


def _parse_mark(text: str) -> Mark | None:
    """Return how far a file was read; ``None`` if the mark is invalid, so that the file is read again."""
    try:
        found = json.loads(text)
        mark = Mark(position=found["position"], lines=found["lines"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    is_usual = all(type(number) is int and 0 <= number <= _LARGEST for number in (mark.position, mark.lines))
    return mark if is_usual else None


def _render_mark(mark: Mark) -> str:
    return json.dumps({"position": mark.position, "lines": mark.lines})
