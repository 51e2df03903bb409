"""The fake ``sbatch``."""

import os
import signal
import sys
import time

from tests.fake_slurm import worker
from tests.fake_slurm.control import check_controller
from tests.fake_slurm.machine import DEFAULT_ACCOUNT, PARTITIONS, find_max_submit, get_max_array_size
from tests.fake_slurm.options import parse_megabytes, parse_minutes, parse_options, split_words
from tests.fake_slurm.state import ROOT, Batch, Change, RefusalError, State, Task, find_fault, parse_indexes

NAMES = (
    "account array chdir comment constraint cpus-per-task error exclude export gpus gpus-per-node gres job-name"
    " licenses mail-type mail-user mem mem-per-cpu nodelist nodes ntasks ntasks-per-node open-mode output partition qos"
    " signal time wrap"
)
FLAGS = "parsable hold requeue no-requeue quiet exclusive"
SHORT = (
    "A=account a=array C=constraint c=cpus-per-task D=chdir e=error G=gpus H=hold J=job-name L=licenses N=nodes"
    " n=ntasks o=output p=partition Q=quiet q=qos t=time w=nodelist x=exclude"
)
FAILED = "sbatch: error: Batch job submission failed:"


def main(words: list[str]) -> None:
    given, rest = _parse(words)
    script, name = _read_script(given, rest)
    options = _parse(_find_headers(script))[0] | given
    check_controller(FAILED)
    refusal = find_fault("refuse")
    if refusal is not None:
        raise RefusalError(refusal)
    with Change() as state:
        batch = _build_batch(options, name, words)
        _check(batch, state)
        batch.id = state.take_id()
        _write_files(batch, script, options)
        state.batches[batch.id] = batch
        state.tasks.extend(_build_tasks(batch, options))
    worker.start_workers()
    _break_off(find_fault("kill-after-submit"))
    if "quiet" not in options or "parsable" not in options:
        sys.stdout.write(f"{batch.id}\n" if "parsable" in options else f"Submitted batch job {batch.id}\n")


def _parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    return parse_options(words, program="sbatch", names=NAMES, flags=FLAGS, short=SHORT)


def _read_script(given: dict[str, str], rest: list[str]) -> tuple[str, str]:
    """The script's text and the name its job gets."""
    if "wrap" in given:
        return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{given['wrap']}\n", "wrap"
    if not rest:
        return sys.stdin.read(), "sbatch"
    try:
        with open(rest[0]) as file:
            return file.read(), os.path.basename(rest[0])
    except OSError:
        raise RefusalError(f"sbatch: error: Unable to open file {rest[0]}") from None


def _find_headers(script: str) -> list[str]:
    if not script.startswith("#!"):
        raise RefusalError(
            "sbatch: error: This does not look like a batch script.  The first\n"
            "sbatch: error: line must start with #! followed by the path to an interpreter.\n"
            "sbatch: error: For instance: #!/bin/sh"
        )
    words: list[str] = []
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            words += split_words(line[len("#SBATCH") :])
    return words


def _build_batch(options: dict[str, str], name: str, words: list[str]) -> Batch:
    nodes = int(options.get("nodes", "1").partition("-")[0])
    ntasks = int(options.get("ntasks", nodes * int(options.get("ntasks-per-node", "1"))))
    cpus = ntasks * int(options.get("cpus-per-task", "1"))
    partition = PARTITIONS.get(options.get("partition", "owens"))
    if partition is None:
        given = options["partition"]
        raise RefusalError(
            f"sbatch: error: invalid partition specified: {given}\n{FAILED} Invalid partition name specified"
        )
    folder = options.get("chdir", os.getcwd())
    output = options.get("output", "slurm-%A_%a.out" if "array" in options else "slurm-%j.out")
    return Batch(
        id=0,
        name=options.get("job-name", name),
        account=options.get("account", DEFAULT_ACCOUNT).lower(),
        partition=partition.name,
        nodes=nodes,
        cpus=cpus,
        ntasks=ntasks,
        memory_mb=_get_memory(options, cpus, partition.memory_per_cpu_mb),
        enforces_memory="mem" in options or "mem-per-cpu" in options,
        limit_min=_get_limit(options, partition.default_min),
        requeue="no-requeue" not in options,
        comment=options.get("comment", ""),
        gpus=options.get("gpus-per-node") or options.get("gpus") or options.get("gres", "").removeprefix("gpu:"),
        output=output,
        error=options.get("error", output),
        folder=folder,
        line=" ".join(["sbatch", *words]),
        indexes=_get_indexes(options),
    )


def _get_memory(options: dict[str, str], cpus: int, memory_per_cpu_mb: int) -> int:
    try:
        if "mem" in options:
            return parse_megabytes(options["mem"])
        return cpus * (parse_megabytes(options["mem-per-cpu"]) if "mem-per-cpu" in options else memory_per_cpu_mb)
    except ValueError:
        raise RefusalError("sbatch: error: Invalid --mem specification", code=255) from None


def _get_limit(options: dict[str, str], default_min: int) -> int:
    try:
        return parse_minutes(options["time"]) if "time" in options else default_min
    except ValueError:
        raise RefusalError("sbatch: error: Invalid --time specification", code=255) from None


def _get_indexes(options: dict[str, str]) -> list[int]:
    try:
        indexes = sorted(set(parse_indexes(options["array"]))) if "array" in options else []
    except ValueError:
        indexes = [-1]
    if indexes and not 0 <= indexes[0] <= indexes[-1] < get_max_array_size():
        raise RefusalError(f"{FAILED} Invalid job array specification")
    return indexes


def _check(batch: Batch, state: State) -> None:
    partition = PARTITIONS[batch.partition]
    if batch.limit_min > partition.max_min:
        raise RefusalError(f"{FAILED} Requested time limit is invalid (missing or exceeds some limit)")
    if batch.nodes > len(partition.nodes):
        raise RefusalError(f"{FAILED} Node count specification invalid")
    if batch.cpus > partition.cpus * batch.nodes:
        raise RefusalError(f"{FAILED} More processors requested than permitted")
    if batch.memory_mb > partition.memory_mb:
        message = f"{FAILED} Requested node configuration is not available"
        raise RefusalError(f"sbatch: error: Memory specification can not be satisfied\n{message}")
    if batch.gpus and not partition.gpus:
        raise RefusalError(f"{FAILED} Requested node configuration is not available")
    most = find_max_submit(batch.account)
    active = sum(task.is_active for task in state.tasks if state.batches[task.batch].account == batch.account)
    if most is not None and active + max(1, len(batch.indexes)) > most:
        message = f"{FAILED} Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
        raise RefusalError(f"sbatch: error: AssocMaxSubmitJobLimit\n{message}")


def _write_files(batch: Batch, script: str, options: dict[str, str]) -> None:
    path = f"{ROOT}/script-{batch.id}"
    with open(path, "w") as file:
        file.write(script)
    os.chmod(path, 0o755)
    kept = ("HOME", "PATH", "USER", "FAKE_SLURM") if options.get("export") == "NONE" else tuple(os.environ)
    worker.write_environment(batch.id, {name: os.environ[name] for name in kept if name in os.environ})


def _build_tasks(batch: Batch, options: dict[str, str]) -> list[Task]:
    reason = "JobHeldUser" if "hold" in options else "None"
    indexes: list[int | None] = [*batch.indexes] or [None]
    return [Task(batch=batch.id, index=index, reason=reason, submit_at=time.time()) for index in indexes]


def _break_off(how: str | None) -> None:
    """Give no answer, though the job was taken."""
    if how == "hang":
        time.sleep(3600)
    if how is not None:
        os.kill(os.getpid(), signal.SIGKILL)
