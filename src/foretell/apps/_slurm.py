"""Where an app's runs are made, and how they are handed to Slurm."""

import re

from foretell.apps._nodes import Entry
from foretell.entities.app import OWN_OPTIONS, RUNNERS, Submission, describe_option, find_meant_option

_KEYS = ("partition", "account", "cluster", "options", "sample")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_WORD = re.compile(r"[!-~]+")
_ELSEWHERE = OWN_OPTIONS | {"clusters": "slurm.cluster in the app file"}


def read_runner(entry: Entry | None) -> str:
    """One of the runners."""
    if entry is None:
        return RUNNERS[0]
    name = entry.read_text(expected=" or ".join(RUNNERS))
    if name is not None and name not in RUNNERS:
        entry.note(" or ".join(RUNNERS))
    return name or RUNNERS[0]


def read_submission(entry: Entry | None) -> Submission:
    """What is said under ``slurm``."""
    if entry is None:
        return Submission()
    fields = entry.read_fields(_KEYS, expected="a mapping such as {partition: cpu, account: PAS1234}")
    return Submission(
        partition=_read_word(fields.get("partition")),
        account=_read_word(fields.get("account")),
        cluster=_read_word(fields.get("cluster")),
        options=_read_options(fields["options"]) if "options" in fields else {},
        sample=bool(fields["sample"].read(_parse_flag)) if "sample" in fields else False,
    )


def _read_word(entry: Entry | None) -> str | None:
    expected = "a name without blanks"
    word = None if entry is None else entry.read_text(expected=expected)
    if entry is not None and word is not None and not _WORD.fullmatch(word):
        entry.note(expected)
    return word


def _read_options(entry: Entry) -> dict[str, str]:
    options = {}
    for name, value in entry.read_fields(expected="options of sbatch, such as {qos: long}").items():
        text = value.read_text(expected="text without blanks; '' for a flag")
        if not _OPTION.fullmatch(name):
            value.note("a long name without dashes before it, as in qos", found=f"the option {name!r}")
        elif meant := find_meant_option(name, _ELSEWHERE):
            value.note(_ELSEWHERE[meant], found=f"the option {describe_option(name, meant)}")
        elif text and not _WORD.fullmatch(text):
            value.note("text without blanks")
        options[name] = text or ""
    return options


def _parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"
