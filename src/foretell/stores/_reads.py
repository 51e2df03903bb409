"""What is asked of a store's tables, as SQL that SQLite and PostgreSQL both understand."""

import abc
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from foretell.core.app import App, Value
from foretell.core.batch import Batch
from foretell.core.errors import NotFoundError
from foretell.core.model_card import ModelRecord
from foretell.core.run import Claim, Run, State
from foretell.stores import _rows
from foretell.stores._base import RunReader

Rows = Sequence[Sequence[Any]]

_MOST_ASKED = 500  # values in one question; SQLite takes no more than some thousands
_EVERY = 2**62  # rows; both databases need a number before OFFSET
_MATCHES_SHOWN = 10
_ID_PREFIX = r"[0-9a-f]+(-[0-9]*)?"
_RUNS = f"SELECT {', '.join(_rows.RUN_COLUMNS)} FROM runs"  # noqa: S608  # constants
_CLAIMS = f"SELECT {', '.join(_rows.CLAIM_COLUMNS)} FROM runs"  # noqa: S608  # constants


class SqlReader(RunReader):
    """Reads the tables with whatever :meth:`fetch` asks; values are always parameters, never part of the text."""

    @abc.abstractmethod
    def fetch(self, query: str, **values: Any) -> Rows:
        """The rows that answer a query; ``:name`` in it stands for a value."""

    def get_app(self, name: str) -> App:
        found = self.fetch("SELECT description FROM apps WHERE name = :name", name=name)
        if not found:
            raise NotFoundError("app", name, known=self.app_names())
        return _rows.build_app(found[0][0])

    def app_names(self) -> list[str]:
        return sorted(_rows.read_text(name) for (name,) in self.fetch("SELECT name FROM apps"))

    def claims(self, app: str) -> list[Claim]:
        query = f"{_CLAIMS} WHERE app = :app AND state = :state ORDER BY number"
        return [_rows.build_claim(row) for row in self.fetch(query, app=app, state=State.RUNNING.value)]

    def batches(self, app: str) -> list[Batch]:
        query = (
            "SELECT job_id, description FROM batches WHERE app = :app "
            "AND EXISTS (SELECT 1 FROM runs WHERE runs.owner_token = batches.id)"
        )
        return sorted(map(_rows.build_batch, self.fetch(query, app=app)), key=lambda batch: batch.created_at)

    def runs(
        self,
        app: str,
        *,
        states: Collection[State] | None = None,
        limit: int | None = None,
        offset: int = 0,
        newest_first: bool = False,
        version: int | None = None,
    ) -> list[Run]:
        words, values = _list_values("state", [] if states is None else [state.value for state in states])
        if states is not None and not words:
            return []
        query = f"{_RUNS} WHERE app = :app"
        query += f" AND state IN ({words})" if words else ""
        query += " AND version = :version" if version is not None else ""
        query += f" ORDER BY number{' DESC' if newest_first else ''} LIMIT :limit OFFSET :offset"
        values |= {} if version is None else {"version": version}
        rows = self.fetch(query, app=app, limit=_EVERY if limit is None else limit, offset=offset, **values)
        return [_rows.build_run(row) for row in rows]

    def runs_with(
        self, app: str, parameters: Collection[Mapping[str, Value]], *, states: Collection[State]
    ) -> list[Run]:
        texts = list(dict.fromkeys(_rows.render_parameters(some) for some in parameters))
        state_words, state_values = _list_values("state", [state.value for state in states])
        found: list[Run] = []
        for start in range(0, len(texts) if states else 0, _MOST_ASKED):
            words, values = _list_values("text", texts[start : start + _MOST_ASKED])
            query = f"{_RUNS} WHERE app = :app AND state IN ({state_words}) AND parameters IN ({words}) ORDER BY number"
            found += map(_rows.build_run, self.fetch(query, app=app, **state_values, **values))
        return found

    def get_run(self, id_prefix: str) -> Run:
        matches = self._find_matches(id_prefix)
        if not matches:
            raise NotFoundError("run", id_prefix, hint="'foretell runs list' shows the ids.")
        if len(matches) > 1 and matches[0].id != id_prefix:
            known = [run.id for run in matches]
            raise NotFoundError("run", id_prefix, known=known, hint="Several ids begin so: write more of it.")
        return matches[0]

    def _find_matches(self, id_prefix: str) -> list[Run]:
        if not re.fullmatch(_ID_PREFIX, id_prefix):
            return []
        query = f"{_RUNS} WHERE id >= :first AND id < :after ORDER BY id LIMIT {_MATCHES_SHOWN}"
        after = id_prefix + "~"  # sorts behind every character of an id
        return [_rows.build_run(row) for row in self.fetch(query, first=id_prefix, after=after)]

    def known_ids(self, app: str) -> dict[str, State]:
        rows = self.fetch("SELECT id, state FROM runs WHERE app = :app ORDER BY number", app=app)
        return {run_id: _rows.read_state(state) for run_id, state in rows}

    def count_runs(self, app: str, *, version: int | None = None) -> dict[State, int]:
        where = "app = :app" if version is None else "app = :app AND version = :version"
        values = {} if version is None else {"version": version}
        query = f"SELECT state, count(*) FROM runs WHERE {where} GROUP BY state"  # noqa: S608  # constants
        return {_rows.read_state(state): count for state, count in self.fetch(query, app=app, **values)}

    def find_model(self, app: str) -> ModelRecord | None:
        rows = self.fetch("SELECT app, card, extra, created_at, blob FROM models WHERE app = :app", app=app)
        return _rows.build_model(rows[0]) if rows else None

    def model_run_ids(self, app: str) -> tuple[str, ...]:
        rows = self.fetch("SELECT run_ids FROM models WHERE app = :app", app=app)
        return _rows.read_run_ids(rows[0][0]) if rows else ()

    def count_received_jobs(self, app: str) -> int:
        rows = self.fetch("SELECT jobs FROM history_counts WHERE app = :app", app=app)
        return _rows.read_count(rows[0][0]) if rows else 0


def _list_values(name: str, values: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """``:name0, :name1`` for a list in SQL, and the value of each."""
    named = {f"{name}{number}": value for number, value in enumerate(values)}
    return ", ".join(f":{each}" for each in named), named
