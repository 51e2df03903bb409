"""Where the app file, the store, the sites and our own files are."""

import os
import pwd
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from foretell.cli._output import note
from foretell.core.errors import Mistake, NotFoundError, SpecError

APP_FILE = "foretell.yaml"
_ROOT = 0
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NAME_LINE = r"^name\s*:\s*['\"]?([^'\"#\s]+)"


def find_app_file(start: Path | None = None) -> Path | None:
    """The nearest foretell.yaml, here or in a folder above.

    Raises:
        SpecError: if it is here and anybody can write it, or above and others could have put it there.
    """
    here = (start or Path.cwd()).absolute()
    found = next((folder / APP_FILE for folder in (here, *here.parents) if (folder / APP_FILE).is_file()), None)
    if found is not None and found.parent == here:
        _check_here(found)
    elif found is not None:
        _check_above(found)
    return found


def _check_here(path: Path) -> None:
    """The file of the current folder: nobody else may have left it there."""
    file, folder = path.stat(), path.parent.stat()
    if file.st_mode & stat.S_IWOTH:
        mistake = Mistake(place="file", found="one that anybody can write", expected=f"chmod o-w {path}")
        raise SpecError(str(path), [mistake])
    if file.st_uid not in (os.geteuid(), _ROOT) and folder.st_mode & stat.S_IWOTH:
        raise _build_trust_error(path, f"one that belongs to {_name_user(file.st_uid)}")


def _check_above(path: Path) -> None:
    """The file of a folder above, which the user did not name: only its owner and root may be able to change it.

    So it stays what was checked until it is read. A folder with the sticky bit, such as /tmp, is anybody's.
    """
    file, folder = path.lstat(), path.parent.stat()
    for place, status in ((path, file), (path.parent, folder)):
        if status.st_uid not in (os.geteuid(), _ROOT):
            kind = "one" if place is path else "one in a folder"
            raise _build_trust_error(path, f"{kind} that belongs to {_name_user(status.st_uid)}")
    if stat.S_ISLNK(file.st_mode):
        raise _build_trust_error(path, "a symbolic link")
    for place, status in ((path, file), (path.parent, folder)):
        if status.st_mode & _OTHERS:
            remedy = "" if status.st_mode & stat.S_ISVTX else f"; or close it: chmod go-w {place}"
            raise _build_trust_error(path, f"one that others can change, because they can write {place}", remedy)


def _build_trust_error(path: Path, found: str, remedy: str = "") -> SpecError:
    mistake = Mistake(
        place="file",
        found=f"{found}, in a folder you did not name",
        expected=f"its name, to use it all the same: {path}{remedy}",
    )
    return SpecError(str(path), [mistake])


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def find_app(argument: str | None) -> str:
    """The app's file if it describes the app of that name, else the name of an app in the store.

    Raises:
        NotFoundError: if nothing was named and there is no app file.
    """
    from foretell.core.private_files import looks_like_a_file

    if argument is not None and looks_like_a_file(argument):
        return argument
    path = find_app_file()
    if argument is None:
        if path is None:
            raise NotFoundError("file", APP_FILE, hint="Write one with 'foretell init', or name an app.")
        return str(path)
    described = path is not None and re.search(_NAME_LINE, path.read_text("utf-8", errors="replace"), re.MULTILINE)
    return str(path) if described and described.group(1) == argument else argument


def find_store(explicit: str | None, app: str | None = None) -> str:
    """The store's address: as given, from the environment, or in the work folder of the app file."""
    said = explicit or os.environ.get("FORETELL_STORE")
    if said:
        return said
    path = Path(app) if app is not None and app.endswith((".yaml", ".yml")) else find_app_file()
    return str(find_work_folder(path.parent if path else Path.cwd()) / "store.db")


def find_work_folder(directory: Path) -> Path:
    """Where Foretell's files of the apps in a folder are."""
    from foretell.core.private_files import work_folder

    return work_folder(directory)


def find_kept_folder() -> Path:
    """The user's own work folder, for what is in files and not in the store, which others may share."""
    path = None if os.environ.get("FORETELL_WORK_DIR") else find_app_file()
    return find_work_folder(path.parent if path else Path.cwd())


def note_unused_store(explicit: str | None) -> None:
    """Note that ``--store`` has no effect where no store is opened; earlier versions stored files next to it."""
    if explicit is not None:
        note(f"--store is not used here: fitted models are in {find_kept_folder()}.")


def find_site_files(explicit: Iterable[Path] | None) -> list[Path]:
    """The user's site files: in the configuration folder, from the environment, and as given."""
    listed = [Path(part) for part in os.environ.get("FORETELL_SITES", "").split(os.pathsep) if part]
    return [*sorted(find_site_folder().glob("*.toml")), *listed, *(explicit or ())]


def find_site_folder() -> Path:
    """Where the user's site files are."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "foretell" / "sites"
