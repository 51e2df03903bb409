"""What to say of a store that is not there, and which one may have been meant."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from foretell.errors import StoreError

USUAL = Path(".foretell") / "store.db"
_SQLITE = b"SQLite format 3\0"
_MOST_FILES = 1000


def check_there(path: Path) -> None:
    """Only commands that store something make a store: all others would look into an empty one.

    Raises:
        StoreError: if there is no such file.
    """
    if path.exists():
        return
    near = find_near(path)
    meant = f" Did you mean {str(near)!r}?" if near else ""
    raise StoreError(
        f"store {path}: there is no such file.{meant} Check --store or FORETELL_STORE; 'foretell generate', "
        f"'foretell runs import' and 'foretell history import' make a new store."
    )


def find_near(path: Path) -> Path | None:
    """The store with the most similar name in the same folder, or the usual one in that folder, here or above."""
    names = {each.name: each for each in _list_stores(path.parent)}
    similar = get_close_matches(path.name, names, n=1, cutoff=0.5)
    if similar:
        return names[similar[0]]
    folders = (path.parent, Path.cwd(), *Path.cwd().parents)
    return next((folder / USUAL for folder in folders if (folder / USUAL).is_file()), None)


def _list_stores(folder: Path) -> Iterator[Path]:
    try:
        files = sorted(folder.iterdir())[:_MOST_FILES]
    except OSError:
        return
    for file in files:
        if _is_sqlite(file):
            yield file


def _is_sqlite(file: Path) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return opened.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
