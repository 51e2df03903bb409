"""Which application a kind of jobs is of, told by its texts where no rule says so; and the options of its command."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from foretell.entities.app import Value
from foretell.entities.history import JobKind

# What people call a script or a job that could be anything.
_GENERIC = frozenset(
    {"a", "array", "bash", "batch", "cmd", "exe", "interactive", "job", "jobscript", "launch", "main", "mpi", "run",
     "sbatch", "script", "sh", "shell", "slurm", "srun", "start", "submit", "task", "test", "tmp", "work", "wrap"}
)  # fmt: skip
_ENDING = re.compile(r"\.(sh|bash|sbatch|slurm|job|batch|py|R|pl|jl|csh|zsh)$")
_STARTERS = frozenset({"sbatch", "srun", "salloc"})
# Options of sbatch that are followed by their value as a word of its own.
_WITH_VALUE = frozenset(f"-{letter}" for letter in "aAbBcCdDeEFGiJLMmnNopqStwx")
_ID = re.compile(r"(?<![A-Za-z0-9])(?=[0-9a-f]*\d)[0-9a-f]{8,}(?![A-Za-z0-9])", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_TO_JOIN = re.compile(r"[\W_]+")
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_LONGEST_NAME, _LONGEST_VALUE, _LONGEST_NUMBER, _MOST_OPTIONS = 60, 200, 15, 40
NAMELESS = "unnamed"


def name_app(kind: JobKind) -> str:
    """User and what the job is called, without numbers and ids; by script or folder where the name tells nothing."""
    stems = map(stem_of, _list_names(kind))
    telling = next((stem for stem in stems if stem and stem.lower() not in _GENERIC), NAMELESS)
    user = _TO_JOIN.sub("-", kind.user).strip("-")
    return f"{user}.{telling}" if user else telling


def _list_names(kind: JobKind) -> Iterator[str]:
    yield kind.name
    yield find_script(kind.command)
    yield from reversed(kind.work_directory.split("/"))


@lru_cache(maxsize=10_000)
def stem_of(name: str) -> str:
    """``train_lr0.1_run17`` and ``train_lr0.3_run2`` are both ``train_lr_run``."""
    base = name.rsplit("/", 1)[-1]
    plain = _NUMBER.sub(" ", _ID.sub(" ", _ENDING.sub("", base)))
    return _TO_JOIN.sub("_", plain).strip("_")[:_LONGEST_NAME]


@lru_cache(maxsize=10_000)
def find_script(command: str) -> str:
    """The script a command submits: the first word that is no option; empty if there is none."""
    words = command.split()
    place = _find_script_place(words)
    return "" if place is None else words[place]


def _find_script_place(words: Sequence[str]) -> int | None:
    if not words or words[0].rsplit("/", 1)[-1] not in _STARTERS:
        return 0 if words else None
    place = 1
    while place < len(words):
        word = words[place]
        if word.startswith("--wrap") or not word.startswith("-"):
            return None if word.startswith("--wrap") else place
        takes_next = word in _WITH_VALUE or (word.startswith("--") and "=" not in word and _has_value(words, place))
        place += 2 if takes_next else 1
    return None


def _has_value(words: Sequence[str], place: int) -> bool:
    """Whether a long option's value is the next word: it is where a script is still to come behind it."""
    following = words[place + 1 : place + 3]
    flags = {"--parsable", "--exclusive", "--requeue", "--no-requeue", "--wait", "--hold", "--test-only", "--quiet"}
    return words[place] not in flags and len(following) > 1 and not following[0].startswith("-")


@lru_cache(maxsize=10_000)
def find_options(command: str) -> Mapping[str, Value]:
    """``--epochs 30``, ``--batch=64`` and flags behind the script's name."""
    words = command.split()
    place = _find_script_place(words)
    if place is None:
        return {}
    found: dict[str, Value] = {}
    for name, value in _list_options(words[place + 1 :]):
        if len(found) < _MOST_OPTIONS:
            found[name] = value
    return found


def _list_options(words: Sequence[str]) -> Iterator[tuple[str, Value]]:
    for place, word in enumerate(words):
        match = _OPTION.fullmatch(word)
        if match is None:
            continue
        name, value = match[1].replace("-", "_"), match[2]
        following = words[place + 1] if place + 1 < len(words) else "-"
        is_flag = value is None and following.startswith("-") and not _NUMBER.fullmatch(following)
        yield name, True if is_flag else read_value(following if value is None else value)


def read_value(text: str) -> Value:
    """A number where it is one, a truth, else the text."""
    words: dict[str, Value] = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    if not _NUMBER.fullmatch(text) or len(text) > _LONGEST_NUMBER:
        return text[:_LONGEST_VALUE]
    number = int(text) if text.lstrip("+-").isdecimal() else float(text)
    return number if math.isfinite(number) else text
