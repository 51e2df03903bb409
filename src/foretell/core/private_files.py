"""Files and folders of this user's own: closed to others, and never written through a link that somebody else made.

The one module of core that does I/O, because every feature that writes files needs the same safety rules.
"""

import contextlib
import errno
import os
import pwd
import secrets
import stat
from pathlib import Path
from typing import IO

from foretell.core.errors import OutputError

_ROOT = 0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ELSEWHERE = "use an app file in a folder of your own, or name a folder of yours in the variable FORETELL_WORK_DIR"


def make_own_folder(path: Path, *, top: Path) -> None:
    """Make a folder only this user may enter, or check that the one that is there is a real folder of this user's.

    So must be the folders above it, up to ``top``. That one may be a symbolic link of this user's own, to a scratch
    disk for example; what it points to must belong to this user or to root.

    Raises:
        OutputError: if one of them is a link, or belongs to somebody else.
        OSError: if it cannot be made.
    """
    make_top_folder(top)
    _make_missing(path)
    check_own_folder(path, top=top)
    _close_to_writers(path)  # earlier versions created it with the umask of the user


def make_private_folder(path: Path, *, top: Path) -> None:
    """As :func:`make_own_folder`, and nobody else may read it, or write to the one above it.

    Raises:
        OutputError: if one of them is a link, or belongs to somebody else.
        OSError: if it cannot be made.
    """
    make_own_folder(path, top=top)
    path.chmod(stat.S_IRWXU)
    if path.parent != top:
        _close_to_writers(path.parent)


def check_own_folder(path: Path, *, top: Path) -> None:
    """Whether a folder that exists is a real one of this user's, and so are those above it, up to ``top``.

    Raises:
        OutputError: if not.
        OSError: if it cannot be read.
    """
    for folder in (path, *path.parents):
        if folder == top:
            break
        if folder.is_symlink():
            raise OutputError(
                f"{str(folder)!r} is a symbolic link; what it points to would be overwritten. "
                f"Remove the link; to keep such files on another disk, link the whole folder {str(top)!r}"
            )
        if folder.stat().st_uid not in (_list_own_users() if folder == path else _list_trusted_users()):
            raise OutputError(
                f"{str(folder)!r} belongs to {name_owner(folder)}; Foretell only writes to folders of your own: "
                f"move it away, or {_ELSEWHERE}"
            )
    _check_top_folder(top)


def make_top_folder(folder: Path) -> None:
    """Make a folder that others of this user's own are in, or check that nobody else can replace what is in it.

    Raises:
        OutputError: if it, or the link in its place, belongs to somebody else.
        OSError: if it cannot be made.
    """
    _make_missing(folder)
    _check_top_folder(folder)


def _check_top_folder(folder: Path) -> None:
    if folder.lstat().st_uid not in _list_trusted_users():
        what = "is a symbolic link of" if folder.is_symlink() else "belongs to"
        owner = _name_user(folder.lstat().st_uid)
        raise OutputError(f"{str(folder)!r} {what} {owner}, who could replace what is in it; {_ELSEWHERE}")
    if folder.stat().st_uid not in _list_trusted_users():
        raise OutputError(
            f"{str(folder)!r} leads to a folder that belongs to {name_owner(folder)}, who could replace what is in it; "
            f"{_ELSEWHERE}"
        )


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all; a link in its place goes, and what it points to stays.

    Raises:
        OSError: if it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with draft.open("xb") as file:
            file.write(data)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def open_to_append(path: Path) -> IO[bytes]:
    """A file to read, and to write at its end; made where there is none.

    Raises:
        OutputError: if it is a symbolic link.
        OSError: if it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        raise OutputError(
            f"{path}: a symbolic link; what it points to would be changed. Remove the link, or name another file"
        ) from exc
    return os.fdopen(descriptor, "ab+")


def name_owner(path: Path) -> str:
    """The user a file belongs to, by name where there is one."""
    return _name_user(path.stat().st_uid)


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _list_own_users() -> set[int]:
    """This user; for root under sudo also the calling user."""
    asked = os.environ.get("SUDO_UID", "")
    return {os.geteuid(), int(asked)} if os.geteuid() == _ROOT and asked.isdecimal() else {os.geteuid()}


def _list_trusted_users() -> set[int]:
    return {*_list_own_users(), _ROOT}


def _make_missing(path: Path) -> None:
    for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        _give_to_owner(folder)


def _give_to_owner(folder: Path) -> None:
    """Under sudo, what is created in the folder of the calling user belongs to that user."""
    above = folder.parent.stat()
    if above.st_uid in _list_own_users() - {os.geteuid()}:
        os.chown(folder, above.st_uid, above.st_gid, follow_symlinks=False)


def _close_to_writers(folder: Path) -> None:
    facts = folder.stat()
    if facts.st_mode & _WRITABLE_BY_OTHERS and facts.st_uid in _list_own_users():
        folder.chmod(stat.S_IMODE(facts.st_mode) & ~_WRITABLE_BY_OTHERS)


APP_FILE = "foretell.yaml"
FOLDER = ".foretell"
STORE_FILE = "store.db"
WORK_DIR = "FORETELL_WORK_DIR"


def work_folder(directory: Path) -> Path:
    """Where Foretell keeps its files of the apps in a folder: below it, or where the environment says."""
    said = os.environ.get(WORK_DIR)
    return Path(said).expanduser().absolute() if said else directory.absolute() / FOLDER


def make_kept_folder(folder: Path, kind: str) -> Path:
    """The folder of one kind of files below a work folder; it is this user's own.

    Raises:
        OutputError: if it cannot be made, is a symbolic link, or belongs to somebody else.
    """
    path = folder / kind
    try:
        make_own_folder(path.absolute(), top=folder.absolute())
    except OutputError:
        raise
    except OSError as exc:
        raise OutputError(
            f"{path}: this folder cannot be made ({exc.strerror}); "
            f"start from a folder you can write to, or name one in the variable {WORK_DIR}"
        ) from exc
    return path


def keep_file(path: Path, data: bytes) -> None:
    """Write a file in a folder of :func:`make_kept_folder`.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        write_whole(path, data)
    except OSError as exc:
        raise OutputError(f"{path}: cannot be written ({exc.strerror}); make room, or make it writable") from exc


def default_store(directory: Path) -> Path:
    """The SQLite file next to an app file, or where the environment says."""
    return work_folder(directory) / STORE_FILE


def looks_like_a_file(app: str | Path) -> bool:
    return isinstance(app, Path) or app.endswith((".yaml", ".yml")) or "/" in app
