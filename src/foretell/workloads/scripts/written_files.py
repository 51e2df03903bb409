"""Reports which files and folders a process writes. Imports the standard library only."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from foretell.workloads.scripts import script_events

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_SYSTEM = ("/dev/", "/proc/", "/sys/")
_TEMPORARY = ("pymp-", "torchelastic_")  # of multiprocessing, of torchrun
_MOST = 10_000  # paths that a process reports


class WrittenFiles:
    """The files and folders that this process creates or changes.

    Files that libraries in C++ write are known only where :meth:`note` is called for them.
    """

    def __init__(self) -> None:
        self._noted: set[str] = set()
        self._busy = False
        self.before_write: Callable[[], None] | None = None

    def watch(self) -> None:
        """Note every file that Python code of this process opens for writing from now on."""
        sys.addaudithook(self._hear)

    def note(self, path: object, *, folder: bool = False) -> None:
        """Report a file that is about to be written, or a folder that is about to be made."""
        if self._busy or not isinstance(path, (str, bytes, os.PathLike)):
            return
        self._busy = True
        try:
            text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  # links are kept
            if _is_of_interest(text) and (folder or not os.path.isdir(text)):  # noqa: PTH112  # a file without a name
                self._report(text, folder=folder)
        except (OSError, ValueError):
            return
        finally:
            self._busy = False

    def _report(self, path: str, *, folder: bool) -> None:
        exists = os.path.exists(path)  # noqa: PTH110
        if folder and exists:
            return
        if self.before_write is not None and not folder:
            self.before_write()
        if path not in self._noted and len(self._noted) < _MOST:
            self._noted.add(path)
            script_events.report("file", path=path, created=not exists)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and len(args) == 3 and isinstance(args[2], int) and args[2] & _WRITING:
            self.note(args[0])
        elif event == "os.mkdir":
            self.note(args[0], folder=True)
        elif event == "os.rename":
            self.note(args[1])
        elif event == "sqlite3.connect" and args[0] != ":memory:":
            self.note(args[0])


def _is_of_interest(path: str) -> bool:
    own = os.environ.get(script_events.FOLDER, "/proc/")
    return not (path.startswith((*_SYSTEM, own)) or path.endswith(".pyc") or "__pycache__" in path)


def list_files(events: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The reported files that exist: created ones, changed ones. What is in a created folder is named by its folder."""
    created: dict[str, bool] = {}
    for event in events:
        path = event.get("path")
        if event["kind"] == "file" and isinstance(path, str) and path not in created:
            created[path] = event.get("created") is True
    left = {path: new for path, new in created.items() if _exists(path)}
    folders = {path for path, new in left.items() if new and Path(path).is_dir()}
    outer = [path for path in left if not folders & set(map(str, Path(path).parents))]
    return {
        "created": tuple(path for path in outer if left[path]),
        "changed": tuple(path for path in outer if not left[path]),
    }


def remove_temporary(events: Iterable[Mapping[str, Any]]) -> None:
    """Remove folders that launchers and workers remove themselves if nobody ends them."""
    place = Path(tempfile.gettempdir()).resolve()
    for path in map(Path, list_files(events)["created"]):
        own = path.name.startswith(_TEMPORARY) and path.parent.resolve() == place
        if own and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False


WRITTEN = WrittenFiles()
