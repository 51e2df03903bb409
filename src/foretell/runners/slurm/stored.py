"""Which batches of a store are this user's: a store is data that others may have written, never an instruction."""

import os
import re
from dataclasses import replace
from pathlib import Path

from foretell.entities.job import Batch
from foretell.errors import RunnerError
from foretell.own_files import check_own_folder
from foretell.runners.slurm.array import name_batch

_ID = re.compile(r"[0-9a-f]{16}")
_JOB_ID = re.compile(r"[0-9]{0,20}")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def check_batch(batch: Batch, *, app: str, directory: Path) -> Batch:
    """The batch with its folder below ``directory``, where this user submits batches of that app from.

    Raises:
        RunnerError: if it was not submitted from there, or is none that Foretell could have written.
    """
    shown = f"batch {batch.id!r} in the store"
    for name, is_usual in _list_checks(batch, app):
        if not is_usual:
            raise RunnerError(
                f"{shown} is left alone: its {name} is none that Foretell writes, somebody changed the store"
            )
    folder = directory.absolute() / batch.id
    if os.path.realpath(batch.directory) != os.path.realpath(folder):
        raise RunnerError(
            f"{shown} is left alone: it was submitted from {batch.directory!r}, not from below {str(directory)!r}. "
            f"'foretell status' stores its {len(batch.run_ids)} runs when it is called by the same user and app file"
        )
    try:
        check_own_folder(folder, top=folder.parent.parent)
    except FileNotFoundError:
        pass  # never written
    except OSError as exc:
        raise RunnerError(f"{shown} is left alone: {exc}") from exc
    return replace(batch, directory=str(folder))


def _list_checks(batch: Batch, app: str) -> list[tuple[str, bool]]:
    cluster = batch.submission.cluster
    has_id = _ID.fullmatch(batch.id) is not None
    return [
        ("id", has_id),
        ("app", batch.app == app),
        ("name", has_id and batch.name == name_batch(app, batch.id)),
        ("job id", _JOB_ID.fullmatch(batch.job_id) is not None),
        ("cluster", cluster is None or _CLUSTER.fullmatch(cluster) is not None),
    ]
