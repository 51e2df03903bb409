"""Which batches of a store are this user's: a store is data that others may have written, never an instruction."""

import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foretell.core.batch import Batch
from foretell.core.errors import RunnerError
from foretell.core.private_files import check_own_folder
from foretell.schedulers.slurm.job_array import name_batch

_ID = re.compile(r"[0-9a-f]{16}")
_RUN_ID = re.compile(r"[0-9a-f]{16}-[0-9]{1,18}")
_JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
_MOST_JOB_ID = 2**31  # squeue answers nothing at all if one of the ids it is asked for is larger
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)  # before there was Foretell
_CLOCKS_APART = timedelta(hours=1)  # between the machines that share a store


class LeftAloneError(RunnerError):
    """A batch of the store is not followed; the message says why."""

    def __init__(self, batch: Batch, why: str) -> None:
        super().__init__(f"batch {batch.id!r} in the store is left alone: {why}")


def check_batch(batch: Batch, *, app: str, directory: Path) -> Batch:
    """The batch with its folder below ``directory``, where this user submits batches of that app from.

    Raises:
        LeftAloneError: if it was not submitted from there, or is none that Foretell could have written.
    """
    for name, is_usual in _list_checks(batch, app):
        if not is_usual:
            raise LeftAloneError(batch, f"its {name} is none that Foretell writes, somebody changed the store")
    folder = directory.absolute() / batch.id
    if os.path.realpath(batch.directory) != os.path.realpath(folder):
        raise LeftAloneError(
            batch,
            f"it was submitted from {batch.directory!r}, not from below {str(directory)!r}. "
            f"'foretell status' stores its {len(batch.run_ids)} runs when it is called by the same user and app file",
        )
    try:
        check_own_folder(folder, top=folder.parent.parent)
    except FileNotFoundError:
        pass  # never written
    except OSError as exc:
        raise LeftAloneError(batch, str(exc)) from exc
    return replace(batch, directory=str(folder))


def is_job_id(text: object) -> bool:
    """Whether Slurm can be asked about a job of that id."""
    return isinstance(text, str) and _JOB_ID.fullmatch(text) is not None and int(text) < _MOST_JOB_ID


def _list_checks(batch: Batch, app: str) -> list[tuple[str, bool]]:
    cluster = batch.submission.cluster
    has_id = _ID.fullmatch(batch.id) is not None
    return [
        ("id", has_id),
        ("app", batch.app == app),
        ("name", has_id and batch.name == name_batch(app, batch.id)),
        ("job id", batch.job_id == "" or is_job_id(batch.job_id)),
        ("cluster", cluster is None or _CLUSTER.fullmatch(cluster) is not None),
        ("list of runs", all(_RUN_ID.fullmatch(run_id) for run_id in batch.run_ids)),
        ("time", _EARLIEST <= batch.created_at <= datetime.now(UTC) + _CLOCKS_APART),
        ("folder", _is_path(batch.directory)),
    ]


def _is_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half a character
        return False
