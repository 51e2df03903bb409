"""What Slurm's controller says of jobs now: those that wait and run, and for some minutes those that have ended."""

import os
from collections.abc import Collection
from dataclasses import dataclass

from foretell.core.errors import SchedulerError
from foretell.core.run import State
from foretell.schedulers.slurm.commands import call
from foretell.schedulers.slurm.fields import parse_state

_UNKNOWN_ID = "Invalid job id specified"  # not "Invalid job id: 0": then squeue says nothing of the others, either


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How a job stands in the queue; ``why`` it waits, if it does."""

    state: State
    word: str
    why: str = ""
    name: str = ""
    user_id: int | None = None


def read_queue(job_ids: Collection[str], *, cluster: str | None = None) -> dict[str, Place]:
    """These jobs and all elements of these arrays, by ``12`` or ``12_3``; one call for all.

    What ended longer ago than the controller remembers is not there.

    Raises:
        SchedulerError: if the controller does not answer (``transient``), or says what we do not know.
    """
    if not job_ids:
        return {}
    where = [f"--clusters={cluster}"] if cluster else []
    options = [
        "--noheader",
        "--array",
        "--states=all",
        "--format=%F|%K|%T|%U|%r|%j",
        f"--jobs={','.join(sorted(job_ids))}",
    ]
    try:
        return parse_queue(call(["squeue", *options, *where]))
    except SchedulerError as exc:
        if _UNKNOWN_ID in str(exc):
            return {}
        raise


def find_by_name(name: str, *, cluster: str | None = None) -> str | None:
    """The id of this user's job or array of that name, if the controller knows one.

    Raises:
        SchedulerError: if the controller does not answer.
    """
    where = [f"--clusters={cluster}"] if cluster else []
    answer = call(["squeue", "--noheader", "--states=all", "--format=%F|%U", f"--name={name}", *where])
    jobs = (line.split("|") for line in answer.split() if "|" in line)
    return min((job_id for job_id, user in jobs if user == str(os.getuid())), key=int, default=None)


def parse_queue(text: str) -> dict[str, Place]:
    """Places by job id, from ``squeue --noheader --array --format=%F|%K|%T|%U|%r|%j``.

    Raises:
        SchedulerError: if a line is none of squeue's, or has a state we do not know.
    """
    places = {}
    for line in text.splitlines():
        if line.startswith("CLUSTER:") or not line.strip():
            continue
        try:
            array, index, word, user, why, name = line.split("|", 5)
            user_id = int(user)
        except ValueError:
            raise SchedulerError(f"squeue answered {line!r}; expected 6 fields. Please report it") from None
        job_id = array if index in ("", "N/A") else f"{array}_{index}"
        places[job_id] = Place(
            state=parse_state(word), word=word, why="" if why == "None" else why, name=name, user_id=user_id
        )
    return places


def cancel(job_ids: Collection[str], *, cluster: str | None = None) -> None:
    """Cancel jobs, arrays or elements of arrays; those that have ended are left alone.

    Raises:
        SchedulerError: if the controller does not answer.
    """
    if job_ids:
        where = [f"--clusters={cluster}"] if cluster else []
        call(["scancel", "--quiet", *where, *sorted(job_ids)])
