"""Options and helpers that several commands share."""

import os
import pwd
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from foretell.cli._output import note
from foretell.core.errors import Mistake, NotFoundError, SpecError

if TYPE_CHECKING:
    from foretell.core.app import Submission

T = TypeVar("T")

APP_FILE = "foretell.yaml"
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_CLUSTERS = "clusters"  # Slurm is asked about this one: no abbreviation may hide it
_AN_OPTION = "NAME=VALUE with the long name of an option of sbatch, for example qos=long; NAME alone for a flag"
_ROOT = 0
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NAME_LINE = re.compile(r"^name\s*:\s*['\"]?([^'\"#\s]+)", re.MULTILINE)

AppArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="APP", help="An app's name, or its file; default: the foretell.yaml here.", show_default=False
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="The store: a file or a database URL. [env: FORETELL_STORE]", show_default=False
    ),
]
UnusedStoreOption = Annotated[str | None, typer.Option("--store", metavar="URL", hidden=True)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A parameter of the configuration; repeat for each.", show_default=False
    ),
]
LevelOption = Annotated[str, typer.Option(help="How sure the interval should be.")]
SiteOption = Annotated[str, typer.Option(help="Where it should run; 'foretell sites list' names them.")]
MaxTimeOption = Annotated[str | None, typer.Option(help="The most time it may take.")]
PreferOption = Annotated[
    str, typer.Option(help="cheapest, fastest, or auto: the fastest if only the cost is limited, else the cheapest.")
]
RiskOption = Annotated[
    str | None,
    typer.Option(
        help="The chance that the first request is too small, in time or memory, such as 5%; default: at most 10%.",
        show_default=False,
    ),
]
RetryCostOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="What a failed try costs in addition to its request, in multiples of the prediction; default: 1.",
        show_default=False,
    ),
]
ExtrapolateOption = Annotated[
    bool,
    typer.Option(
        "--extrapolate",
        help="Also consider more than 4 times the cores, GPUs or nodes of the runs, and other architectures.",
    ),
]
SiteFileOption = Annotated[
    list[Path] | None,
    typer.Option("--site-file", help="A site file of your own; repeatable. [env: FORETELL_SITES]"),
]
PartitionOption = Annotated[
    str | None, typer.Option(help="The partition of the cluster; default: the app file's, or the cluster's own.")
]
AccountOption = Annotated[
    str | None, typer.Option(help="The account that pays for the jobs.", envvar="SBATCH_ACCOUNT", show_envvar=True)
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="A further option of sbatch, such as qos=long; repeatable."),
]
SampleOption = Annotated[
    bool, typer.Option("--sample", help="Sample memory over time and GPUs inside the jobs, beside accounting.")
]


def build_submission(
    *, partition: str | None, account: str | None, options: Iterable[str] | None, sample: bool = False
) -> "Submission":
    """How runs are handed to Slurm.

    Raises:
        SpecError: with every option that is none, or not to be given so.
    """
    from foretell.core.app import Submission

    pairs = [word.partition("=") for word in options or ()]
    further = {name: value for name, _, value in pairs}
    mistakes = _list_repeated("--option", (name for name, _, _ in pairs))
    mistakes += [mistake for name in further if (mistake := _find_option_mistake(name))]
    if mistakes:
        raise SpecError("options", mistakes)
    return Submission(partition=partition, account=account, options=further, sample=sample)


def _find_option_mistake(name: str) -> Mistake | None:
    from foretell.core.app import OWN_OPTIONS, describe_option, find_meant_option

    if not _OPTION.fullmatch(name):
        return Mistake(place="--option", found=repr(name), expected=_AN_OPTION)
    meant = find_meant_option(name, (*OWN_OPTIONS, _CLUSTERS))
    if meant is None or name == _CLUSTERS:
        return None
    expected = OWN_OPTIONS.get(meant, f"the full name {meant!r}")
    return Mistake(place="--option", found=describe_option(name, meant), expected=expected)


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
    """The file of a folder that the user went to: nobody else may have left it there."""
    file, folder = path.stat(), path.parent.stat()
    if file.st_mode & stat.S_IWOTH:
        mistake = Mistake(place="file", found="one that anybody can write", expected=f"chmod o-w {path}")
        raise SpecError(str(path), [mistake])
    if file.st_uid not in (os.geteuid(), _ROOT) and folder.st_mode & stat.S_IWOTH:
        raise _build_trust_error(path, f"one that belongs to {_name_user(file.st_uid)}")


def _check_above(path: Path) -> None:
    """The file of a folder that nobody named: only its owner and root may be able to change or replace it.

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
    """What names the app: a file for the app described here, else the argument as a name in the store.

    Raises:
        NotFoundError: if nothing was named and there is no app file.
    """
    from foretell.apps.workspace import looks_like_a_file

    if argument is not None and looks_like_a_file(argument):
        return argument
    path = find_app_file()
    if argument is None:
        if path is None:
            raise NotFoundError("file", APP_FILE, hint="Write one with 'foretell init', or name an app.")
        return str(path)
    described = path is not None and _NAME_LINE.search(path.read_text("utf-8", errors="replace"))
    return str(path) if described and described.group(1) == argument else argument


def find_store(explicit: str | None, app: str | None = None) -> str:
    """The store's address: as said, from the environment, or in the work folder of the app file."""
    said = explicit or os.environ.get("FORETELL_STORE")
    if said:
        return said
    path = Path(app) if app is not None and app.endswith((".yaml", ".yml")) else find_app_file()
    return str(find_work_folder(path.parent if path else Path.cwd()) / "store.db")


def find_work_folder(directory: Path) -> Path:
    """Where Foretell's files of the apps in a folder are."""
    from foretell.apps.workspace import work_folder

    return work_folder(directory)


def find_kept_folder() -> Path:
    """The user's own work folder, for what is in files and not in the store, which others may share."""
    path = None if os.environ.get("FORETELL_WORK_DIR") else find_app_file()
    return find_work_folder(path.parent if path else Path.cwd())


def note_unused_store(explicit: str | None) -> None:
    """Say of commands that open no store that ``--store`` changes nothing; it once chose where they keep files."""
    if explicit is not None:
        note(f"--store is not used here: what is learned is in {find_kept_folder()}.")


def find_site_files(explicit: Iterable[Path] | None) -> list[Path]:
    """The user's site files: in the configuration folder, from the environment, and as said."""
    listed = [Path(part) for part in os.environ.get("FORETELL_SITES", "").split(os.pathsep) if part]
    return [*sorted(find_site_folder().glob("*.toml")), *listed, *(explicit or ())]


def find_site_folder() -> Path:
    """Where the user's site files are."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "foretell" / "sites"


def parse_settings(settings: Iterable[str] | None) -> dict[str, str]:
    """``name=value`` words as a mapping.

    Raises:
        SpecError: with every word that is none, and every name that is given twice.
    """
    pairs = [(word, *word.partition("=")) for word in settings or ()]
    mistakes = [
        Mistake(place="--set", found=repr(word), expected="NAME=VALUE, for example epochs=100")
        for word, name, equals, _ in pairs
        if not (equals and name)
    ]
    mistakes += _list_repeated("--set", (name.strip() for _, name, _, _ in pairs))
    if mistakes:
        raise SpecError("options", mistakes)
    return {name.strip(): value for _, name, _, value in pairs}


def _list_repeated(option: str, names: Iterable[str]) -> list[Mistake]:
    """Names that an option was given more than once: which of the values was meant is anybody's guess."""
    return [
        Mistake(place=option, found=f"{name!r} {times} times", expected="each name once")
        for name, times in Counter(names).items()
        if times > 1
    ]


def parse_option(name: str, parse: Callable[[str], T], text: str) -> T:
    """An option's value.

    Raises:
        SpecError: if it cannot be read.
    """
    try:
        return parse(text)
    except ValueError as exc:
        raise SpecError("options", [Mistake(place=name, found=repr(text), expected=_expect(text, exc))]) from None


def _expect(text: str, exc: ValueError) -> str:
    """``'5x' is no duration; write for example 90s`` as what was expected."""
    wanted = str(exc).removeprefix(f"{text!r} is no ")
    return wanted if wanted == str(exc) else f"{'an' if wanted[0] in 'aeiou' else 'a'} {wanted}"


def parse_optional(name: str, parse: Callable[[str], T], text: str | None) -> T | None:
    """An option's value; ``None`` if it was not given.

    Raises:
        SpecError: if it cannot be read.
    """
    return None if text is None else parse_option(name, parse, text)
