"""The fake ``scontrol``."""

import os
import sys

from tests.fake_slurm import worker
from tests.fake_slurm.control import check_controller, stop
from tests.fake_slurm.machine import NODES, PARTITIONS, get_max_array_size
from tests.fake_slurm.options import parse_options
from tests.fake_slurm.state import Change, RefusalError, State, Task, find_fault, render_clock, render_moment


def main(words: list[str]) -> None:
    options, rest = parse_options(words, program="scontrol", names="", flags="oneliner", short="o=oneliner")
    verb, rest = rest[0], rest[1:]
    if verb == "ping":
        _ping()
        return
    check_controller("slurm_load_ctl_conf error:" if rest[:1] == ["config"] else "slurm_update error:")
    if verb == "show":
        text = _SHOWS[rest[0].rstrip("s")](rest[1] if len(rest) > 1 else None)
        sys.stdout.write(_join_lines(text) if "oneliner" in options else text)
    else:
        _VERBS[verb](rest)


def _ping() -> None:
    if find_fault("slurmctld-down") is not None:
        sys.stdout.write("Slurmctld(primary) at login is DOWN\n")
        stars = "*" * 41
        raise RefusalError(f"{stars}\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{stars}")
    sys.stdout.write("Slurmctld(primary) at login is UP\n")


def _show_config(_: str | None) -> str:
    text = _read_recorded("config").replace("= 1001", f"= {get_max_array_size()}")
    if find_fault("accounting-off") is not None:
        text = text.replace("accounting_storage/slurmdbd", "accounting_storage/none")
    return text


def _show_partition(name: str | None) -> str:
    if name is not None and name not in PARTITIONS:
        raise RefusalError(f"Partition {name} not found")
    return _pick("partition", "PartitionName", name)


def _show_node(name: str | None) -> str:
    if name is not None and name not in NODES:
        raise RefusalError(f"Node {name} not found")
    down = State().down
    parts = _pick("node", "NodeName", name).split("\n\n")
    return "\n\n".join(part.replace("State=IDLE", "State=DOWN") if part[9:14] in down else part for part in parts)


def _show_job(word: str | None) -> str:
    state = State()
    tasks = state.tasks if word is None else state.find(word)
    if not tasks:
        raise RefusalError("slurm_load_jobs error: Invalid job id specified")
    return "\n".join(_render_job(state, task) for task in tasks)


def _render_job(state: State, task: Task) -> str:
    batch = state.batches[task.batch]
    array = "" if task.index is None else f" ArrayJobId={batch.id} ArrayTaskId={task.index}"
    start = "Unknown" if task.start_at is None else render_moment(task.start_at)
    end = "Unknown" if task.end_at is None else render_moment(task.end_at)
    return (
        f"JobId={task.raw_id or batch.id}{array} JobName={batch.name}\n"
        f"   UserId=root(0) GroupId=root(0) MCS_label=N/A\n"
        f"   Account={batch.account} QOS=normal\n"
        f"   JobState={task.state.split()[0]} Reason={task.reason} Dependency=(null)\n"
        f"   Requeue={int(batch.requeue)} Restarts={task.restarts} BatchFlag=1 ExitCode={task.code}:{task.signal}\n"
        f"   TimeLimit={render_clock(batch.limit_min * 60)} TimeMin=N/A\n"
        f"   SubmitTime={render_moment(task.submit_at)} StartTime={start} EndTime={end}\n"
        f"   Partition={batch.partition} NodeList={task.node} NumNodes={batch.nodes} NumCPUs={batch.cpus}\n"
        f"   WorkDir={batch.folder}\n   Comment={batch.comment or '(null)'}\n"
    )


def _pick(file: str, key: str, name: str | None) -> str:
    text = _read_recorded(file)
    if name is None:
        return text
    return (
        next(
            part
            for part in text.split("\n\n")
            if part.startswith(f"{key}={name}") and part.split()[0] == f"{key}={name}"
        )
        + "\n\n"
    )


def _join_lines(text: str) -> str:
    return "".join(" ".join(part.split("\n   ")).rstrip("\n") + "\n" for part in text.split("\n\n") if part.strip())


def _read_recorded(name: str) -> str:
    with open(f"{os.path.dirname(__file__)}/recorded/{name}.txt") as file:
        return file.read()


def _requeue(words: list[str]) -> None:
    for task in _find(words):
        if task.state != "RUNNING":
            raise RefusalError(f"Job has already finished for job {task.id}")
        stop(task, "REQUEUED")


def _hold(words: list[str]) -> None:
    with Change() as state:
        for task in (task for word in words for task in state.find(word) if task.state == "PENDING"):
            task.reason = "JobHeldUser"


def _release(words: list[str]) -> None:
    with Change() as state:
        for task in (task for word in words for task in state.find(word) if task.state == "PENDING"):
            task.reason = "None"
    worker.start_workers()


def _update(words: list[str]) -> None:
    """Set a node down or let it come back, or end a job's time at once."""
    values = {name.lower(): value for name, _, value in (word.partition("=") for word in words)}
    if "endtime" in values:
        for task in _find([values["jobid"]]):
            stop(task, "TIMEOUT")
    elif "nodename" in values:
        _set_node(values["nodename"], is_down=values["state"].upper() == "DOWN")
    else:
        raise RefusalError("slurm_update error: this fake changes nodes' states and jobs' EndTime only")


def _set_node(name: str, *, is_down: bool) -> None:
    with Change() as state:
        state.down = [node for node in state.down if node != name] + [name] * is_down
        for task in state.tasks:
            if is_down and task.state == "RUNNING" and task.node == name:
                stop(task, "NODE_FAIL")
    worker.start_workers()


def _find(words: list[str]) -> list[Task]:
    tasks = [task for word in words for task in State().find(word)]
    if not tasks:
        raise RefusalError("slurm_update error: Invalid job id specified")
    return tasks


_SHOWS = {"config": _show_config, "partition": _show_partition, "node": _show_node, "job": _show_job}
_VERBS = {"requeue": _requeue, "hold": _hold, "release": _release, "update": _update}
