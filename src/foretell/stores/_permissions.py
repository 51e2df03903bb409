"""Who can write the file of a store: only its user, a group that shares it, or anybody, which is refused."""

import grp
import logging
import os
import pwd
import stat
from pathlib import Path

from foretell.core.errors import StoreError

_log = logging.getLogger(__name__)

_FILE, _FOLDER = 0o600, 0o700
_GROUP_FILE, _GROUP_FOLDER = 0o660, 0o2770  # setgid: what SQLite writes next to the file belongs to the group, too
_ROOT = 0
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def create_file(path: Path) -> None:
    """Make an empty file and its folder, for this user only; leave what is there.

    Raises:
        StoreError: if they cannot be made.
    """
    try:
        _make_folders(path.parent, mode=_FOLDER)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE))
    except OSError as exc:
        if not os.path.isdir(path.parent):  # noqa: PTH112  # Path.is_dir() raises where a name is too long
            raise StoreError(
                f"the store's folder {str(path.parent)!r} cannot be made ({exc.strerror}); "
                "name another place with --store."
            ) from exc
        # It is there, or its folder may not be written to: what SQLite says of that names what to do.


def create_group_file(path: Path, *, group: str) -> None:
    """Make an empty file that a group may write, and its folder if there is none.

    Raises:
        StoreError: if the file is there already, this user is not in the group, or its folder is not the group's.
    """
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError:
        raise StoreError(f"there is no group {group!r} here; 'id -Gn' lists yours.") from None
    try:
        for folder in _make_folders(path.parent, mode=_FOLDER):
            os.chown(folder, -1, number)
            folder.chmod(_GROUP_FOLDER)
        _check_group_folder(path.parent, number, group)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE)
    except FileExistsError:
        remedy = f"to share it, run: chgrp {group} {path} && chmod 660 {path}"
        raise StoreError(f"store {path}: it exists already; {remedy}") from None
    except OSError as exc:
        raise StoreError(f"store {path}: it cannot be made for group {group!r} ({exc.strerror})") from exc
    try:
        os.fchown(descriptor, -1, number)
        os.fchmod(descriptor, _GROUP_FILE)
    finally:
        os.close(descriptor)


def resolve_file(path: Path) -> Path:
    """The file that a path names, through a symbolic link where nobody else can have made it.

    Raises:
        StoreError: if it is a link of somebody else's, or others could replace it.
    """
    if not os.path.islink(path):  # noqa: PTH114  # Path.is_symlink() raises where a name is too long
        return path
    link, folder = path.lstat(), path.parent.stat()
    if not {link.st_uid, folder.st_uid} <= {os.geteuid(), _ROOT} or folder.st_mode & _OTHERS:
        raise StoreError(
            f"store {path}: it is a symbolic link that others can replace; name the file itself with --store."
        )
    return path.resolve()


def check_file(path: Path) -> None:
    """Whether a store may be used at all.

    Raises:
        StoreError: if anybody on the machine can write it, replace it, or put a journal next to it: SQLite writes what
            that holds into the store.
    """
    try:
        file, folder = path.stat(), path.parent.stat()
    except OSError:
        return  # what SQLite says of it names what to do
    if file.st_mode & stat.S_IWOTH:
        raise _build_open_error(path, path)
    if folder.st_mode & stat.S_IWOTH:
        raise _build_open_error(path, path.parent)
    is_shared = bool(file.st_mode & stat.S_IWGRP) and file.st_gid in {os.getegid(), *os.getgroups()}
    if file.st_uid not in (os.geteuid(), _ROOT) and not is_shared:
        _log.warning(
            "store %s belongs to %s, not to you or a group of yours: whoever wrote it chose what it answers",
            path, _name_user(file.st_uid),
        )  # fmt: skip


def is_private(path: Path) -> bool:
    """Whether nobody but this user (and root) can have written the file, or put it in its place."""
    try:
        file, folder = path.stat(), path.parent.stat()
    except OSError:
        return False
    owned = file.st_uid == os.geteuid() and folder.st_uid in (os.geteuid(), _ROOT)
    return owned and not (folder.st_mode | file.st_mode) & _OTHERS


def _make_folders(folder: Path, *, mode: int) -> list[Path]:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=mode, exist_ok=True)
    return missing


def _check_group_folder(folder: Path, number: int, group: str) -> None:
    status = folder.stat()
    if status.st_gid != number or not status.st_mode & stat.S_IWGRP:
        raise StoreError(
            f"the folder {str(folder)!r} is not writable for group {group!r}, and SQLite writes a journal there: "
            f"chgrp {group} {folder} && chmod 2770 {folder}"
        )


def _build_open_error(path: Path, open_to_all: Path) -> StoreError:
    is_sticky = bool(open_to_all.stat().st_mode & stat.S_ISVTX)  # such as /tmp, which must stay open
    remedy = "keep it in a folder of your own" if is_sticky else f"close it with: chmod o-w {open_to_all}"
    return StoreError(
        f"store {path}: anybody on this machine can write {str(open_to_all)!r}, so what it holds may be anybody's; "
        f"{remedy}"
    )


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
