"""A store that may be away for a while: what long work asks of it is asked again until it answers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from foretell.errors import StoreError
from foretell.stores import RunStore

_SHORTEST_S, _LONGEST_S = 0.5, 10.0


class Patience:
    """Passes on what is asked of a store; within :meth:`waiting`, failures that may pass are waited out."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._tell: Callable[[str], None] | None = None

    @property
    def store(self) -> RunStore:
        """The store, as patient as this is."""
        return cast("RunStore", self)

    @property
    def private(self) -> bool:
        """As the store's."""
        return self._store.private

    @contextmanager
    def waiting(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Be patient; ``tell`` is told of each outage once."""
        self._tell = tell
        try:
            yield
        finally:
            self._tell = None

    def __getattr__(self, name: str) -> Any:
        return partial(self._ask, getattr(self._store, name))

    def _ask(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        pause_s = _SHORTEST_S
        while True:
            try:
                return method(*arguments, **named)
            except StoreError as exc:
                if self._tell is None or not exc.transient:
                    raise
                if pause_s == _SHORTEST_S:
                    self._tell(f"{exc} Trying until it answers; runs under way are not affected.")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)
