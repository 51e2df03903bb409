"""A real Slurm cluster on this machine, all of it in one folder: for the tests, or by hand.

    python -m tests.slurm.cluster start|stop|status|env FOLDER

Needs root and Debian 12 (Slurm 22.05) or 13 (24.11); missing packages are installed. Several may run side by side.
Other commands then find it by ``eval "$(python -m tests.slurm.cluster env FOLDER)"``.
"""

import contextlib
import os
import random
import re
import select
import shutil
import signal
import socket
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from tests.slurm.packages import ensure_installed

NODES = ("o0001", "o0002", "o0649", "p0501", "p0301")
ACCOUNTS = ("PAS0001", "PAS0002", "small")
SMALL_MAX_SUBMIT = 20
_CLUSTER = "osctest"
_TEMPLATES = Path(__file__).parent / "templates"
_PORTED = ("slurmctld", "slurmdbd", *NODES)
# Below the ports the kernel gives to clients: one that is free while a daemon is down must be free when it comes back.
_PORTS = range(20000, 32000, len(_PORTED))
_PATIENCE_S = 60.0


class ClusterError(Exception):
    """A cluster does not do what it should; its logs are in its folder."""


class Cluster:
    """munge, MariaDB, slurmdbd, slurmctld and five slurmd, with their files in one folder.

    Without accounting there is neither MariaDB nor slurmdbd, and ``sacct`` knows nothing.
    """

    def __init__(self, folder: Path, *, accounting: bool = True, max_array_size: int = 1001) -> None:
        if len(str(folder)) > 80 or not re.fullmatch(r"/[\w./-]+", str(folder)):
            raise ClusterError(f"{folder} cannot hold a cluster: sockets need a short, plain, absolute path")
        self.folder = folder
        self.accounting = accounting
        self.max_array_size = max_array_size

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need to find this cluster."""
        return {"SLURM_CONF": str(self.folder / "etc/slurm.conf"), "MUNGE_SOCKET": str(self.folder / "munge/socket")}

    @property
    def daemons(self) -> tuple[str, ...]:
        """Names of all daemons, in the order of their start; a slurmd has its node's."""
        database = ("mariadbd", "slurmdbd") if self.accounting else ()
        return ("munged", *database, "slurmctld", *NODES)

    def start(self) -> None:
        """Start what does not run, and wait until every node is idle."""
        reason = ensure_installed()
        if reason is not None:
            raise ClusterError(reason)
        self._write_files()
        for name in self.daemons:
            self.start_daemon(name)
            if name == "slurmdbd":
                self._add_accounts()
        self._resume_nodes()

    def stop(self) -> None:
        """End all daemons and jobs; the folder stays."""
        if self.is_running("slurmctld"):
            with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
                self.cancel_all()
        for name in reversed(self.daemons):
            self._end(name)
        _kill_all(self.folder)

    def remove(self) -> None:
        """End it the hard way, and delete its folder."""
        _kill_all(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_running(self, name: str) -> bool:
        return self._find_pid(name) is not None

    def kill(self, name: str) -> None:
        """End a daemon at once, as a crash would."""
        pid = self._find_pid(name)
        if pid is None:
            raise ClusterError(f"{name} does not run; known daemons: {', '.join(self.daemons)}")
        os.kill(pid, signal.SIGKILL)
        _wait(lambda: not self.is_running(name), f"{name} survived SIGKILL")

    def start_daemon(self, name: str) -> None:
        """Start a daemon if it does not run, and wait until it answers."""
        if self.is_running(name):
            return
        command = self._get_command(name)
        if name == "mariadbd" and not (self.folder / "mysql/mysql").exists():
            self._create_database()
        environment = os.environ | self.environment | {"MYSQL_UNIX_PORT": f"{self.folder}/mysql.socket"}
        _spawn(command, log=self.folder / f"log/{name}.out", environment=environment)
        _wait(lambda: self.is_running(name) and self._answers(name), f"{name} does not start; see {self.folder}/log")
        if name == "mariadbd":
            self._run_sql(
                "create database if not exists slurm_acct_db;"
                "create user if not exists slurm@localhost identified by 'slurm';"
                "grant all on slurm_acct_db.* to slurm@localhost;"
            )

    def run(self, *command: str) -> str:
        """What a command of Slurm prints, run on this cluster."""
        done = subprocess.run(
            command,
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def wait_until_saved(self) -> None:
        """Wait until the controller has saved its current state, which it does within five seconds of a submission.

        Until then it may not have saved that jobs have started. A file that has just been written may be older.
        """
        job_id = self.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
        time.sleep(6.0)
        self.run("scancel", job_id)

    def cancel_all(self) -> None:
        """Cancel every job, and wait for their ends."""
        if self.run("squeue", "-h", "-o", "%A"):
            self.run("scancel", "--user=root")
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until no job waits or runs, and accounting knows all ends."""
        _wait(lambda: not self.run("squeue", "-h", "-o", "%A"), "jobs do not end")
        if self.accounting and self.is_running("slurmdbd"):
            still = ("sacct", "-nXP", "-a", "-S", "now-1day", "-E", "now", "-s", "PD,R", "-o", "JobID")
            _wait(lambda: not self.run(*still), "accounting does not learn of ends")

    def expire(self, job_id: str) -> None:
        """Bring a running job's time limit forward: Slurm counts minutes, and looks only every 30 seconds."""
        end = datetime.now() + timedelta(seconds=1)
        self.run("scontrol", "update", f"JobId={job_id}", f"EndTime={end:%Y-%m-%dT%H:%M:%S}")

    def mark_out_of_memory(self, job_id: str) -> None:
        """Rewrite the accounting of an ended job to what a cluster with cgroups records: OUT_OF_MEMORY, 0:125."""
        raw = self.run("sacct", "-nXP", "-j", job_id, "-o", "JobIDRaw").split()
        if len(raw) != 1:
            raise ClusterError(f"{job_id} is no ended job: accounting knows {raw}")
        self._run_sql(
            f"update {_CLUSTER}_step_table set state = 11, exit_code = 125"
            f" where (id_step = -5 or exit_code & 127 = 9) and job_db_inx ="
            f" (select max(job_db_inx) from {_CLUSTER}_job_table where id_job = {raw[0]});"
            f"update {_CLUSTER}_job_table set state = 11, exit_code = 125, derived_ec = 125"
            f" where id_job = {raw[0]} and time_end > 0;",
            "slurm_acct_db",
        )

    def keep_until_end_of(self, pid: int) -> None:
        """Let a process of its own remove this cluster when another has ended, however that happened."""
        words = ["keep", str(self.folder), str(pid)]
        _spawn([sys.executable, "-m", "tests.slurm.cluster", *words], log=Path(os.devnull), environment=os.environ)

    def _write_files(self) -> None:
        for name in ("etc", "run", "log", "munge", "slurmctld", "slurmd", "dev", *(f"slurmd/{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("nvidia0", "nvidia1"):
            if not (self.folder / "dev" / name).is_symlink():
                (self.folder / "dev" / name).symlink_to("/dev/null")
        self._write_once("munge/key", random.SystemRandom().randbytes(128))
        first = int(self._write_once("etc/ports", str(_find_ports()).encode()))
        words = {
            "folder": str(self.folder),
            "cluster": _CLUSTER,
            "host": socket.gethostname().partition(".")[0],
            "max_array_size": str(self.max_array_size),
            **{f"{name}_port": str(first + index) for index, name in enumerate(_PORTED)},
        }
        words["accounting"] = _fill("accounting.conf", words) if self.accounting else ""
        for name in ("slurm.conf", "slurmdbd.conf", "gres.conf"):
            (self.folder / "etc" / name).write_text(_fill(name, words))
        (self.folder / "etc/slurmdbd.conf").chmod(0o600)
        if _read_version() >= (23, 11):
            (self.folder / "etc/cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def _write_once(self, name: str, content: bytes) -> bytes:
        path = self.folder / name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_bytes(content)
        return path.read_bytes()

    def _get_command(self, name: str) -> list[str]:
        folder = self.folder
        commands = {
            # --force: the folder need not have the owners munge would like.
            "munged": [
                *("munged", "--force", f"--socket={folder}/munge/socket", f"--key-file={folder}/munge/key"),
                *(f"--seed-file={folder}/munge/seed", f"--pid-file={folder}/run/munged.pid"),
                f"--log-file={folder}/log/munged.log",
            ],
            # Nothing here outlives the tests: speed matters, durability does not.
            "mariadbd": [
                *("mariadbd", "--no-defaults", "--user=root", f"--datadir={folder}/mysql"),
                *(f"--socket={folder}/mysql.socket", f"--pid-file={folder}/run/mariadbd.pid", "--skip-networking"),
                *("--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--innodb-flush-log-at-trx-commit=0"),
                *("--innodb-lock-wait-timeout=900", "--skip-log-bin"),
            ],
            "slurmdbd": ["slurmdbd"],
            "slurmctld": ["slurmctld"],
            **{node: ["slurmd", "-N", node] for node in NODES},
        }
        if name not in self.daemons:
            raise ClusterError(f"no daemon named {name!r}; known daemons: {', '.join(self.daemons)}")
        return commands[name]

    def _answers(self, name: str) -> bool:
        checks = {
            "munged": ["munge", "-n", "-S", f"{self.folder}/munge/socket"],
            "mariadbd": [*self._sql_command(), "-e", "select 1"],
            "slurmdbd": ["sacctmgr", "-n", "show", "cluster"],
            "slurmctld": ["scontrol", "ping"],
        }
        if name not in checks:
            return True
        environment = os.environ | self.environment
        done = subprocess.run(checks[name], env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.returncode == 0

    def _create_database(self) -> None:
        command = [
            *("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={self.folder}/mysql"),
            *("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"),
        ]
        with (self.folder / "log/mariadb-install.out").open("wb") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)

    def _sql_command(self) -> list[str]:
        return ["mariadb", "--no-defaults", "-uroot", "-S", f"{self.folder}/mysql.socket"]

    def _run_sql(self, statements: str, *database: str) -> None:
        subprocess.run([*self._sql_command(), *database, "-e", statements], check=True, capture_output=True)

    def _add_accounts(self) -> None:
        """Make cluster, accounts and users known before slurmctld asks for them."""
        if "small" in self.run("sacctmgr", "-nP", "show", "assoc", "format=account"):
            return
        names = ",".join(ACCOUNTS)
        self.run("sacctmgr", "-iQ", "add", "cluster", _CLUSTER)
        self.run("sacctmgr", "-iQ", "add", "account", names, f"Cluster={_CLUSTER}", "Organization=test")
        self.run("sacctmgr", "-iQ", "add", "user", "root", f"Account={names}", f"DefaultAccount={ACCOUNTS[0]}")
        self.run(
            "sacctmgr",
            "-iQ",
            "modify",
            "user",
            "root",
            "where",
            "account=small",
            "set",
            f"MaxSubmit={SMALL_MAX_SUBMIT}",
        )

    def _resume_nodes(self) -> None:
        """Wait for all nodes, those included that an earlier, harder end left down."""
        down = self.run("sinfo", "-hN", "-t", "down,drain,fail", "-o", "%N").split()
        for node in set(down):
            with contextlib.suppress(ClusterError):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        up = ("sinfo", "-hN", "-t", "idle,mix,alloc", "-o", "%N")
        _wait(lambda: set(self.run(*up).split()) == set(NODES), f"nodes do not come up; see {self.folder}/log")

    def _end(self, name: str) -> None:
        pid = self._find_pid(name)
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(ClusterError):
            _wait(lambda: not self.is_running(name), f"{name} does not end", patience_s=10)
            return
        self.kill(name)

    def _find_pid(self, name: str) -> int | None:
        path = self.folder / "run" / (f"slurmd.{name}.pid" if name in NODES else f"{name}.pid")
        try:
            pid = int(path.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if _is_ours(pid, self.folder) else None


def _spawn(command: list[str], *, log: Path, environment: Mapping[str, str]) -> None:
    """Start a process that is nobody's child."""
    # A daemon that had our pipes would keep those waiting who read them to the end.
    with log.open("ab") as output:
        subprocess.run(
            ["setsid", "--fork", *command],
            env=environment,
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=True,
        )


def _fill(name: str, words: Mapping[str, str]) -> str:
    return string.Template((_TEMPLATES / name).read_text()).substitute(words)


def _read_version() -> tuple[int, int]:
    answer = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", answer)
    if found is None:
        raise ClusterError(f"slurmd -V says {answer!r}, where a version was expected")
    return int(found[1]), int(found[2])


def _find_ports() -> int:
    """The first of as many free ports in a row as daemons listen on."""
    # By chance, so that clusters that are started together do not look at the same.
    for first in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if all(_is_free(first + index) for index in range(len(_PORTED))):
            return first
    raise ClusterError(f"no {len(_PORTED)} free ports in a row between {_PORTS.start} and {_PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _wait(is_done: Callable[[], bool], complaint: str, *, patience_s: float = _PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not is_done():
        if time.monotonic() > deadline:
            raise ClusterError(complaint)
        time.sleep(0.05)


def _find_processes(folder: Path) -> Iterator[int]:
    """Daemons, steps and jobs of the cluster in a folder."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return (pid for pid in pids if _is_ours(pid, folder))


def _is_ours(pid: int, folder: Path) -> bool:
    """Whether a process is a daemon, step or job of the cluster in a folder; a shell that merely uses it is not."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    place = os.fsencode(f"{folder}/")
    if name in {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "slurmstepd"}:
        return bool(command) and (place in command or place in environment)
    return b"\0SLURM_JOB_ID=" in environment and b"SLURM_CONF=" + place in environment


def _kill_all(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    # Again until there is none: a process may be started while we look.
    while pids := list(_find_processes(folder)):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes {pids} of {folder} survived SIGKILL")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _keep(cluster: Cluster, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    if cluster.folder.exists():
        cluster.remove()


def _print_status(cluster: Cluster) -> int:
    for name in cluster.daemons:
        sys.stdout.write(f"{'up' if cluster.is_running(name) else 'down':5} {name}\n")
    return 0 if all(map(cluster.is_running, cluster.daemons)) else 1


def main(words: list[str]) -> int:
    if len(words) < 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    verb, cluster = words[0], Cluster(Path(words[1]).absolute())
    if verb == "start":
        cluster.start()
    elif verb == "stop":
        cluster.stop()
    elif verb == "keep":
        _keep(cluster, int(words[2]))
    elif verb == "env":
        sys.stdout.write("".join(f"export {name}={value}\n" for name, value in cluster.environment.items()))
    else:
        return _print_status(cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
