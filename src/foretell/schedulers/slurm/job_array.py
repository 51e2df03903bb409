"""Renders job scripts: one for ``sbatch``, and one for each element of a job array."""

import math
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from foretell.core.app import Submission, describe_option, find_meant_option
from foretell.core.batch import Batch
from foretell.core.errors import RunnerError
from foretell.core.run import Allocation, Launch
from foretell.core.units import render_clock
from foretell.schedulers.run_files import JOB_RECORD, STDERR, STDOUT
from foretell.schedulers.shell_script import quote, render_body

_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_VALUE = re.compile(r"[!-~]*", re.ASCII)  # printable ASCII: sbatch splits a line at spaces
_LONGEST_NAME = 64


def render_job_script(
    launch: Launch,
    *,
    job_name: str,
    allocation: Allocation,
    gpu_model: str | None = None,
    account: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    without: Collection[str] = (),
) -> str:
    """Return a complete script for ``sbatch``.

    ``options`` are further ``#SBATCH`` options by their long names; they override Foretell's. An empty value is a flag.
    ``without`` names options that the site does not accept.
    The command runs once, on the first node: a command for several nodes starts its own tasks (``srun``).

    Raises:
        RunnerError: if an option, an argument or a variable cannot be written in such a script.
    """
    asked = build_options(job_name, allocation, gpu_model=gpu_model, account=account) | dict(options)
    header = render_header({name: value for name, value in asked.items() if name not in without})
    return "\n".join([*header, "", *render_body(launch, command=launch.argv)]) + "\n"


def render_header(options: Mapping[str, str]) -> list[str]:
    """Return the first lines of a script for ``sbatch``.

    Raises:
        RunnerError: if an option cannot be written there.
    """
    return ["#!/bin/bash", *(_render_directive(name, value) for name, value in options.items())]


def build_options(
    job_name: str, allocation: Allocation, *, gpu_model: str | None = None, account: str | None = None
) -> dict[str, str]:
    """Return the options of ``sbatch`` for an allocation, by their long names."""
    gpus = f"{gpu_model}:{allocation.gpus}" if gpu_model else str(allocation.gpus)
    directives = {
        "job-name": clean_name(job_name),
        "account": account,
        "partition": allocation.partition,
        "nodes": str(allocation.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(allocation.cores),
        "mem": f"{math.ceil(allocation.memory_bytes / 2**20)}M" if allocation.memory_bytes else None,
        "gpus-per-node": gpus if allocation.gpus else None,
        "time": render_clock(allocation.walltime_s) if allocation.walltime_s else None,
        "output": "%x-%j.out",
    }
    return {name: value for name, value in directives.items() if value is not None}


def clean_name(name: str) -> str:
    """Return a name that Slurm accepts unchanged."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name)[:_LONGEST_NAME].strip("-") or "job"


def _render_directive(name: str, value: str) -> str:
    if not _OPTION.fullmatch(name):
        raise RunnerError(f"{name!r} is not an option of sbatch; write its long name without dashes, as in 'qos'")
    if not _VALUE.fullmatch(value):
        raise RunnerError(f"option {name!r} of sbatch: {value!r} contains spaces or non-ASCII characters")
    return f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"


SCRIPT, ENDED, LOGS, FIRST = "array.sbatch", "ended", "logs", "job"
ARRAY = "array"
# Foretell finds jobs and their logs by these options, so users may not set them.
_RESERVED = (ARRAY, "chdir", "error", "job-name", "output")
_ELEMENT = ("id=$SLURM_ARRAY_JOB_ID index=$SLURM_ARRAY_TASK_ID", "element=${id}_$index")
_ONLY = ("id=$SLURM_JOB_ID index=0", "element=$id")
_OF = "of-"
_GRACE_S = 5
_LONGEST_APP = 40
_WATCH_S = 30
_MARGIN_S = 60.0  # for the parts of a job that are not its command; Slurm counts in minutes


def render_array_script(
    batch: Batch, *, allocation: Allocation, indices: Iterable[int] | None = None, gpu_model: str | None = None
) -> str:
    """Return a script for ``sbatch`` that runs the script of each element; without arrays, that of the only one.

    ``indices`` are the elements to run; by default all of the batch.

    Raises:
        RunnerError: if an option cannot be written in such a script, or is reserved.
    """
    lines = [
        *render_header(_choose_options(batch, allocation, indices or range(len(batch.run_ids)), gpu_model)),
        "",
        f"batch={quote(batch.directory)}",
        *(_ELEMENT if has_elements(batch.submission) else _ONLY),
        "# If sbatch's reply was lost, the batch is submitted again: only the job that starts first continues.",
        f'if [ ! -e "$batch/{FIRST}/$id" ]; then',
        f'  mkdir -p -- "$batch/{_OF}$id" && : >"$batch/{_OF}$id/$id"',
        f'  ln -sn "{_OF}$id" "$batch/{FIRST}" 2>/dev/null',
        f'  [ -e "$batch/{FIRST}/$id" ] || exit 0',
        "fi",
        *_check_owned('"$batch" "$batch/task-$index.sh"'),
        '. "$batch/task-$index.sh"',
    ]
    return "\n".join(lines) + "\n"


def has_elements(submission: Submission) -> bool:
    """Return whether a batch is an array; otherwise it is one job with one run."""
    return ARRAY not in submission.without


def find_first(directory: Path) -> str | None:
    """Return the id of the batch's job that started first, if any has; other jobs of it do nothing."""
    with suppress(OSError):
        job_id = (directory / FIRST).readlink().name.removeprefix(_OF)
        return job_id if job_id.isdecimal() else None
    return None


def _check_owned(paths: str) -> list[str]:
    """Return lines that end the script if a path is not this user's: it may have been replaced since then."""
    return [
        f"for path in {paths}; do",
        '  if [ -L "$path" ] || [ ! -O "$path" ]; then',
        '    echo "foretell: $path is a symbolic link or not yours: nothing is run" >&2; exit 1',
        "  fi",
        "done",
    ]


def _choose_options(
    batch: Batch, allocation: Allocation, indices: Iterable[int], gpu_model: str | None
) -> dict[str, str]:
    submission = batch.submission
    for name in submission.options:
        if meant := find_meant_option(name, _RESERVED):
            shown = describe_option(name, meant)
            raise RunnerError(f"option {shown} of sbatch is reserved: Foretell finds its jobs by it; remove it")
    options = build_options(batch.name, allocation, gpu_model=gpu_model, account=submission.account)
    del options["output"]  # a path may contain spaces: it is passed on the command line
    options[ARRAY] = _render_indices(sorted(indices))
    if "no-requeue" not in submission.options:
        options["requeue"] = ""
    options |= submission.options
    if submission.cluster:
        options["clusters"] = submission.cluster
    return {name: value for name, value in options.items() if name not in submission.without}


def _render_indices(indices: Sequence[int]) -> str:
    """Return ``0-3,5``, the format of ``sbatch --array``."""
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)


def render_task_script(launch: Launch, *, allocation: Allocation, sampler: tuple[str, ...] = ()) -> str:
    """Return the script of one element: it makes the run in its directory and records host, times and exit code.

    Raises:
        RunnerError: if an argument or a variable cannot be written in a shell script.
    """
    command = (*sampler, *launch.argv)
    limit_s = find_own_limit_s(launch, allocation)
    if limit_s is not None:
        command = ("timeout", f"--kill-after={_GRACE_S}", str(limit_s), *command)
    body = [line and f"  {line}" for line in render_body(launch, command=command)]
    lines = [
        f"run={quote(launch.run_directory)}",
        '[ -d "$run" ] || mkdir -p -- "$run"',
        *_check_owned('"$run"'),
        f"for name in {STDOUT} {STDERR} {JOB_RECORD}; do",
        '  [ ! -L "$run/$name" ] || rm -f -- "$run/$name"; : >"$run/$name"',
        "done",
        f'exec >>"$run/{STDOUT}" 2>>"$run/{STDERR}"',
        f'note() {{ printf \'%s=%s\\n\' "$@" >>"$run/{JOB_RECORD}"; }}',
        # Bash 5 needs no other program for the time, which matters for thousands of short runs.
        "now() { now=${EPOCHREALTIME:-$(date +%s.%N)}; }",
        'while IFS=: read -r name cpu; do case $name in "model name"*) break;; esac; cpu=; done </proc/cpuinfo',
        "now",
        'note job "$element" host "${SLURMD_NODENAME:-$HOSTNAME}" cpu "${cpu# }" started "$now"',
        *_render_log_watch(launch.log_limit_bytes),
        "(",
        *body,
        ")",
        "code=$?",
        *([] if launch.log_limit_bytes is None else ['kill "$watch" 2>/dev/null']),
        "now",
        'note code "$code" ended "$now"',
        f': >"$batch/{ENDED}/$index"',
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def _render_log_watch(limit_bytes: int | None) -> list[str]:
    """Return lines that free disk space in the middle of large logs; they are cut when the run is collected."""
    if limit_bytes is None:
        return []
    free = f'fallocate -p -o {limit_bytes // 2} -l $((size - {limit_bytes})) "$log"'
    return [
        f'(while sleep {_WATCH_S}; do for log in "$run/{STDOUT}" "$run/{STDERR}"; do',
        f'  size=$(stat -c %s "$log") && [ "$size" -gt {limit_bytes} ] && {free}',
        "done; done) >/dev/null 2>&1 & watch=$!",
    ]


def build_batch(app: str, *, directory: Path, submission: Submission, run_ids: tuple[str, ...] = ()) -> Batch:
    """Return a new batch below that directory, with a name that Slurm accepts unchanged."""
    from foretell.measure.machine import build_owner

    batch_id = uuid.uuid4().hex[:16]
    return Batch(
        id=batch_id,
        app=app,
        name=name_batch(app, batch_id),
        directory=str(directory.absolute() / batch_id),
        submission=submission,
        run_ids=run_ids,
        submitter=build_owner(),
        created_at=datetime.now(UTC),
    )


def name_batch(app: str, batch_id: str) -> str:
    """Return the unique job name of a batch."""
    return clean_name(f"{app[:_LONGEST_APP]}-{batch_id}")


def find_own_limit_s(launch: Launch, allocation: Allocation) -> float | None:
    """Return the time limit that the element's script enforces; ``None`` if the requested walltime is the only one."""
    return launch.time_limit_s if allocation.walltime_s is None else None


def find_walltime_s(time_limit_s: float | None, allocation: Allocation) -> float | None:
    """Return the walltime to request: that of the allocation, or the run's own limit plus a margin."""
    if allocation.walltime_s is not None or time_limit_s is None:
        return allocation.walltime_s
    return math.ceil((time_limit_s + _GRACE_S + _MARGIN_S) / 60) * 60.0


def read_job_record(run_directory: Path) -> Mapping[str, str]:
    """Return the record of an element: ``job``, ``host``, ``cpu``, ``started``, and in the end ``code``, ``ended``."""
    try:
        text = (run_directory / JOB_RECORD).read_text("utf-8", errors="replace")
    except OSError:
        return {}
    record = {name: value for name, equals, value in (line.partition("=") for line in text.splitlines()) if equals}
    for name in {"started", "ended"} & record.keys():
        record[name] = record[name].replace(",", ".")  # bash uses the decimal separator of the user's locale
    return record
