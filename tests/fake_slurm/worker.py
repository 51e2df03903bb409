"""What runs tasks: as many processes as there are slots, each with one task after another until none is left."""

import contextlib
import json
import os
import resource
import signal
import time

from tests.fake_slurm.machine import PARTITIONS
from tests.fake_slurm.state import ROOT, Batch, Change, State, Task, get_minute_s, render_moment

TICK_S = 0.05
KILL_WAIT_S = 1.0
_SETSID = "/usr/bin/setsid"  # of util-linux, which every Debian and Ubuntu has
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def write_environment(batch: int, environment: dict[str, str]) -> None:
    with open(f"{ROOT}/environment-{batch}", "w") as file:
        json.dump(environment, file)


def start_workers() -> None:
    """Start workers for the free slots, if there is work for them."""
    slots = int(os.environ.get("FAKE_SLURM_SLOTS", "4"))
    with Change() as state:
        state.workers = [pid for pid in state.workers if os.path.exists(f"/proc/{pid}")]
        ready = sum(task.state == "PENDING" and task.reason != "JobHeldUser" for task in state.tasks)
        for _ in range(min(ready, slots - len(state.workers))):
            state.workers.append(_fork_worker())


def _fork_worker() -> int:
    """The process id of a worker that is nobody's child and has nobody's pipes."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        worker = os.fork()
        if worker:
            os.write(writer, str(worker).encode())
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.closerange(3, 256)
        _work()
    os.waitpid(child, 0)
    pid = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    return pid


def _work() -> None:
    # Blocked, it waits for us until we ask for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while (taken := _take_task()) is not None:
        batch, task, pid = taken
        _record_end(task, batch, *(_follow(batch, task, pid) if pid else (None, 0, None)))
    os._exit(0)


def _take_task() -> tuple[Batch, Task, int] | None:
    with Change() as state:
        for task in state.tasks:
            if task.state == "PENDING" and task.reason != "JobHeldUser":
                node = _find_node(state, task)
                if node is not None:
                    return _start(state, task, node)
        state.workers = [pid for pid in state.workers if pid != os.getpid()]
        return None


def _find_node(state: State, task: Task) -> str | None:
    nodes = [node for node in PARTITIONS[state.batches[task.batch].partition].nodes if node not in state.down]
    return nodes[(task.index or 0) % len(nodes)] if nodes else None


def _start(state: State, task: Task, node: str) -> tuple[Batch, Task, int]:
    batch = state.batches[task.batch]
    if task.raw_id is None:
        # As the real one does: the last element of an array has the number of the array itself.
        is_last = len(state.get_pending(task.batch)) == 1
        task.raw_id = task.batch if is_last else state.take_id()
    task.state, task.reason, task.node, task.start_at = "RUNNING", "None", node, time.time()
    return batch, task, _launch(batch, task)


def _launch(batch: Batch, task: Task) -> int:
    """The process of the task's script; 0 if its output cannot be written."""
    try:
        output = os.open(_get_path(batch, task, batch.output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        is_same = batch.error == batch.output
        error = (
            output if is_same else os.open(_get_path(batch, task, batch.error), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        )
    except OSError:
        return 0
    environment = _build_environment(batch, task)
    pid = os.fork()
    if pid:
        os.close(output)
        if not is_same:
            os.close(error)
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.dup2(output, 1)
        os.dup2(error, 2)
        os.closerange(3, 256)
        os.chdir(batch.folder)
        # Another program makes the session: a leader of one that is still this program looks like a leftover sbatch.
        os.execve(_SETSID, ["setsid", f"{ROOT}/script-{batch.id}"], environment)
    finally:
        os._exit(127)


def _get_path(batch: Batch, task: Task, pattern: str) -> str:
    words = {
        "A": batch.id,
        "a": task.index if task.index is not None else 4294967294,
        "j": task.raw_id,
        "x": batch.name,
    }
    words |= {"u": "root", "N": task.node, "%": "%"}
    parts = pattern.split("%")
    text = parts[0] + "".join(f"{words[part[0]]}{part[1:]}" if part else "%" for part in parts[1:])
    return os.path.join(batch.folder, text)


def _build_environment(batch: Batch, task: Task) -> dict[str, str]:
    with open(f"{ROOT}/environment-{batch.id}") as file:
        environment: dict[str, str] = json.load(file)
    words: dict[str, object] = {
        "CLUSTER_NAME": "osctest",
        "CPUS_ON_NODE": batch.cpus // batch.nodes,
        "JOBID": task.raw_id,
        "JOB_ACCOUNT": batch.account,
        "JOB_ID": task.raw_id,
        "JOB_NAME": batch.name,
        "JOB_NODELIST": task.node,
        "JOB_NUM_NODES": batch.nodes,
        "JOB_PARTITION": batch.partition,
        "NNODES": batch.nodes,
        "NODELIST": task.node,
        "NTASKS": batch.ntasks,
        "CPUS_PER_TASK": batch.cpus // batch.ntasks,
        "MEM_PER_NODE": batch.memory_mb,
        "SUBMIT_DIR": batch.folder,
    }
    if task.restarts:
        words["RESTART_COUNT"] = task.restarts
    if task.index is not None:
        indexes = batch.indexes
        words |= {"ARRAY_JOB_ID": batch.id, "ARRAY_TASK_ID": task.index, "ARRAY_TASK_COUNT": len(indexes)}
        words |= {"ARRAY_TASK_MIN": indexes[0], "ARRAY_TASK_MAX": indexes[-1]}
    if batch.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(int(batch.gpus.rpartition(":")[2]))))
    return environment | {f"SLURM_{name}": str(value) for name, value in words.items()} | {"SLURMD_NODENAME": task.node}


def _follow(batch: Batch, task: Task, pid: int) -> tuple[str | None, int, resource.struct_rusage]:
    """Why a task was stopped, if it was, its wait status and what it used."""
    deadline = time.monotonic() + batch.limit_min * get_minute_s()
    why, kill_at = None, 0.0
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            _kill(pid)
            _kill_strays(task)
            return why, status, usage
        if why is None:
            why = _find_reason_to_stop(batch, task, pid, deadline)
            if why is not None:
                _write_log(batch, task, why)
                _kill(pid, signal.SIGKILL if why == "OUT_OF_MEMORY" else signal.SIGTERM)
                kill_at = time.monotonic() + KILL_WAIT_S
        elif time.monotonic() > kill_at:
            _kill(pid)
        signal.sigtimedwait({signal.SIGCHLD}, TICK_S)


def _find_reason_to_stop(batch: Batch, task: Task, pid: int, deadline: float) -> str | None:
    try:
        with open(task.stop_file) as file:
            word = file.read()
        os.unlink(task.stop_file)
        return word
    except FileNotFoundError:
        pass
    if time.monotonic() > deadline:
        return "TIMEOUT"
    if batch.enforces_memory and _measure_kb(pid) > batch.memory_mb * 1024:
        return "OUT_OF_MEMORY"
    return None


def _measure_kb(session: int) -> int:
    """What the processes of a session hold in memory."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                total += int(fields[21]) * _PAGE_KB
    return total


def _kill(session: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, number)


def _kill_strays(task: Task) -> None:
    """Kill what left the task's session: it still has its environment."""
    marks = [f"SLURM_JOB_ID={task.raw_id}".encode(), f"FAKE_SLURM={os.environ['FAKE_SLURM']}".encode()]
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                words = file.read().split(b"\0")
                if all(mark in words for mark in marks):
                    os.kill(int(name), signal.SIGKILL)


def _write_log(batch: Batch, task: Task, why: str) -> None:
    """Write into the task's own log what slurmstepd would."""
    causes = {
        "TIMEOUT": " DUE TO TIME LIMIT",
        "NODE_FAIL": " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
        "REQUEUED": " DUE TO JOB REQUEUE",
        "PREEMPTED": " DUE TO PREEMPTION",
    }
    if why == "OUT_OF_MEMORY":
        text = f"Detected 1 oom_kill event in StepId={task.raw_id}.batch. Some of the step tasks have been OOM Killed."
    else:
        text = (
            f"*** JOB {task.raw_id} ON {task.node} CANCELLED AT {render_moment(time.time())}{causes.get(why, '')} ***"
        )
    with open(_get_path(batch, task, batch.error), "a") as log:
        log.write(f"slurmstepd-{task.node}: error: {text}\n")


def _record_end(task: Task, batch: Batch, why: str | None, status: int, usage: resource.struct_rusage | None) -> None:
    with Change() as state:
        kept = next(other for other in state.tasks if other.id == task.id)
        kept.end_at = time.time()
        if usage is None:
            # What slurmd says when it cannot open the output.
            kept.state, kept.reason, kept.signal = "FAILED", "JobLaunchFailure", 53
            return
        kept.peak_kb, kept.cpu_s = usage.ru_maxrss, usage.ru_utime + usage.ru_stime
        kept.code, kept.signal = os.WEXITSTATUS(status), os.WTERMSIG(status)
        kept.state = _get_final_state(kept) if why is None else why
        if why is not None:
            kept.code, kept.signal = 0, 125 if why == "OUT_OF_MEMORY" else 0
        if why == "REQUEUED" or (why in ("NODE_FAIL", "PREEMPTED") and batch.requeue):
            _queue_again(state, kept)


def _get_final_state(task: Task) -> str:
    if not (task.code or task.signal):
        return "COMPLETED"
    task.reason = "NonZeroExitCode" if task.code else "JobLaunchFailure"
    return "FAILED"


def _queue_again(state: State, task: Task) -> None:
    state.past.append(Task(**vars(task)))
    task.state, task.reason, task.submit_at, task.start_at, task.end_at = (
        "PENDING",
        "BeginTime",
        time.time(),
        None,
        None,
    )
    task.node, task.code, task.signal, task.restarts = "", 0, 0, task.restarts + 1
