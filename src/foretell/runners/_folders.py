"""Folders that runs and job scripts are written to: real ones, and this user's own."""

import os
import pwd
import stat
from pathlib import Path

from foretell.errors import RunnerError

_ROOT = 0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_own_folder(path: Path) -> None:
    """Make a folder only this user may enter, or check that the one that is there is a real folder of this user's.

    The folder above it must be a real one, too. What is further above may be a symbolic link, such as
    ``.foretell/runs`` to a scratch disk; what that points to must belong to this user or to root.

    Raises:
        RunnerError: if it is a symbolic link or belongs to somebody else.
        OSError: if it cannot be made.
    """
    for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    check_own_folder(path)


def make_private_folder(path: Path) -> None:
    """As :func:`make_own_folder`, and nobody else may write to it or read it.

    Raises:
        RunnerError: if it is a symbolic link or belongs to somebody else.
        OSError: if it cannot be made.
    """
    make_own_folder(path)
    path.chmod(stat.S_IRWXU)
    if path.parent.stat().st_uid == os.geteuid():
        path.parent.chmod(stat.S_IMODE(path.parent.stat().st_mode) & ~_WRITABLE_BY_OTHERS)


def check_own_folder(path: Path) -> None:
    """Whether a folder that exists is a real one of this user's.

    Raises:
        RunnerError: if not.
        OSError: if it cannot be looked at.
    """
    for folder in (path, path.parent):
        _check_real(folder)
    if path.stat().st_uid != os.geteuid():
        raise RunnerError(
            f"{str(path)!r} belongs to {name_owner(path)}; Foretell only writes to folders of your own: "
            "move it away, or use an app file in a folder of yours"
        )
    for folder in (path.parent, path.parent.parent):
        if folder.stat().st_uid not in (os.geteuid(), _ROOT):
            raise RunnerError(
                f"{str(folder)!r} belongs to {name_owner(folder)}, who could replace what is in it; "
                "use an app file in a folder of your own"
            )


def name_owner(path: Path) -> str:
    """The user a file belongs to, by name where there is one."""
    number = path.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _check_real(folder: Path) -> None:
    if folder.is_symlink():
        raise RunnerError(
            f"{str(folder)!r} is a symbolic link; what it points to would be overwritten. "
            "Remove the link; to keep runs on another disk, link the whole '.foretell/runs' folder"
        )
