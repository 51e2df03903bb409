"""Hands a script to ``sbatch``, and finds what was handed over when the answer was lost."""

import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import psutil

from foretell.core.errors import SchedulerError
from foretell.probes.slurm import accounting, queue
from foretell.probes.slurm.calls import call

MARK = "FORETELL_BATCH"
_QUOTA = re.compile(r"submit\w*limit|MaxJobCount|slurmctld.*job limit|violates accounting/QOS policy", re.IGNORECASE)
# The same sentence is said of any limit: the word before it tells which.
_OTHER_LIMIT = re.compile(r"\b(Assoc|QOS)(?!\w*Submit)\w+Limit\w*")
_HINTS = {
    "invalid account": "name one of yours with --account; 'sacctmgr show associations user=$USER' lists them",
    "invalid partition": "'sinfo' lists the partitions; name one with --partition",
    "invalid qos": "'sacctmgr show qos' lists them; name one with --option qos=NAME",
    "time limit is invalid": "ask for less time: 'sinfo -o \"%P %l\"' shows each partition's most",
    "node configuration is not available": "ask for less: 'sinfo -Ne -o \"%P %c %m %G\"' shows what nodes have",
    "violates accounting/qos policy": "ask for less: 'sacctmgr show associations user=$USER' shows what you may have",
    "more processors requested": "ask for fewer cores: 'sinfo -Ne -o \"%P %c\"' shows what nodes have",
}
_CLOCKS_APART = timedelta(minutes=5)  # between this machine and the controller


class QuotaError(SchedulerError):
    """No more jobs may be submitted until some have ended."""


def submit(script: Path, *, batch_id: str, output: str, inherited: Iterable[str] = ()) -> str:
    """The id of the job; what it prints goes to ``output``, a pattern of sbatch's.

    It gets this process's environment without what is Foretell's own, but for the ``inherited`` names.

    Raises:
        QuotaError: if so many jobs may not be submitted at once.
        SchedulerError: if it is refused; ``transient`` if nobody knows whether it was taken.
    """
    words = ["sbatch", "--parsable", f"--output={output}", f"--chdir={script.parent}", str(script)]
    asked = {name: os.environ[name] for name in inherited if name in os.environ}
    try:
        answer = call(words, environment={**asked, MARK: batch_id}).strip().partition(";")[0]
    except SchedulerError as exc:
        raise _explain(exc) from exc
    if not answer.isdigit():
        raise SchedulerError(f"sbatch answered {answer!r}; expected a job's number", transient=True)
    return answer


def find_submitted(name: str, *, since: datetime, cluster: str | None = None, accounted: bool = True) -> str | None:
    """The id of the job of that name; ``None`` only if Slurm answered, and knows of none.

    Raises:
        SchedulerError: if it did not answer.
    """
    found = queue.find_by_name(name, cluster=cluster)
    if found is None and accounted:
        earliest = (since.astimezone() - _CLOCKS_APART).strftime("%Y-%m-%dT%H:%M:%S")
        found = accounting.find_by_name(name, since=earliest, cluster=cluster)
    return found


def stop_submitters(batch_id: str) -> int:
    """End the ``sbatch`` of this batch that somebody killed left behind on this machine; how many there were."""
    found = list(_find_submitters(batch_id))
    for process in found:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what a script in its place has started
    psutil.wait_procs(found, timeout=5)
    return len(found)


def _find_submitters(batch_id: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # Sites may have a script in its place. What the job starts has the mark, too, but no session of its own.
            is_sbatch = any(Path(word).name == "sbatch" for word in process.cmdline()[:3])
            is_ours = os.getsid(process.pid) == process.pid and process.environ().get(MARK) == batch_id
            if is_sbatch and is_ours:
                yield process


def _explain(exc: SchedulerError) -> SchedulerError:
    said = str(exc)
    if _QUOTA.search(said) and not _OTHER_LIMIT.search(said):
        return QuotaError(f"{said}; no more jobs may be submitted until some have ended", transient=True)
    hint = next((hint for words, hint in _HINTS.items() if words in said.lower()), None)
    return SchedulerError(f"{said}; {hint}", transient=exc.transient) if hint else exc
