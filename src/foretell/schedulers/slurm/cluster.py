"""Reads a cluster's nodes, partitions and limits from sinfo, scontrol and sacctmgr."""

import math
import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from foretell.core.errors import SchedulerError
from foretell.schedulers.slurm.commands import call, call_all, parse_clock, parse_size


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of one type in a partition; ``up`` of the ``count`` accept jobs now.

    ``cores`` are what the scheduler allocates, which may be hardware threads: then ``threads_per_core`` is not 1.
    ``gpu_model`` is the scheduler's name for it; ``None`` if it has none, or the GPUs of a node differ.
    """

    count: int
    up: int
    cores: int
    memory_bytes: int
    threads_per_core: int = 1
    gpus: int = 0
    gpu_model: str | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition with its limits, ``None`` for no limit. ``up``: users' jobs can start in it.

    ``qos`` names the quality of service whose limits apply to every job in it.
    """

    name: str
    default: bool = False
    up: bool = True
    max_walltime_s: float | None = None
    default_walltime_s: float | None = None
    max_nodes: int | None = None
    max_cores_per_node: int | None = None
    max_memory_per_node_bytes: int | None = None
    default_memory_per_core_bytes: int | None = None
    whole_node: bool = False
    qos: str | None = None
    node_groups: tuple[NodeGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster as its scheduler describes it.

    An array's indices are below ``max_array_size``, and it has at most ``max_array_tasks`` tasks; 0 means no arrays.
    The scheduler keeps at most ``max_jobs`` jobs of all users, and each ended job for ``min_job_age_s``.
    ``limits_enforced``: the scheduler enforces the limits of users and accounts.
    """

    name: str
    version: str
    partitions: tuple[Partition, ...]
    max_array_size: int
    max_array_tasks: int
    max_jobs: int
    min_job_age_s: float
    accounting: bool
    limits_enforced: bool = False

    @property
    def default_partition(self) -> Partition | None:
        return next((partition for partition in self.partitions if partition.default), None)

    def find_partition(self, name: str) -> Partition | None:
        return next((partition for partition in self.partitions if partition.name == name), None)


# The format of these fields is the same since 20.11; --exact lists nodes that differ in one of them separately.
NODES = ("sinfo", "--noheader", "--exact", "--format=%R|%D|%c|%z|%m|%t|%G|%f")
PARTITIONS = ("scontrol", "--oneliner", "show", "partition")
CONFIG = ("scontrol", "show", "config")
ASSOCIATION_FIELDS = "Account,Partition,MaxSubmit,GrpSubmit,DefaultQOS,QOS"
QOS_FIELDS = "Name,Flags,MaxSubmitPU,MaxSubmitPA,GrpSubmit"

# sinfo's short states of nodes on which no job can start. Others (idle, mix, plnd, idle~...) accept jobs now or later.
_OUT = {"down", "drain", "drng", "err", "fail", "failg", "futr", "inval", "npc", "unk"}
_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=")
_SETTING = re.compile(r"^(\S+)\s+= ?(.*)$", re.MULTILINE)
_GRES = re.compile(r"gpu(?::(?P<model>[^:(]*[^:(\d][^:(]*))?(?::(?P<count>\d+))?(?:\(.*\))?")
_OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")
_NO_LIMIT = {"UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", ""}


def read_cluster(*, cluster: str | None = None) -> Cluster:
    """Return this cluster, or the one of that name in a federation.

    Raises:
        SchedulerError: if Slurm is not installed, does not respond, or its output is not understood.
    """
    return parse_cluster(*call_all(*(_add_cluster(argv, cluster) for argv in (CONFIG, PARTITIONS, NODES))))


def read_submit_limit(
    known: Cluster, *, account: str | None = None, partition: str | None = None, qos: str | None = None
) -> int | None:
    """Return how many jobs (array tasks counted each) this user may have submitted at once; ``None`` if unknown.

    Raises:
        SchedulerError: if Slurm's output is not understood.
    """
    user = _find_user()
    if not known.limits_enforced or user is None:
        return None
    try:
        charged = account or _read_default_account(user)
        associations, of_account, levels = call_all(
            _build_query("assoc", ASSOCIATION_FIELDS, f"user={user}", f"cluster={known.name}"),
            _build_query("assoc", ASSOCIATION_FIELDS, f"account={charged}", "user=", f"cluster={known.name}"),
            _build_query("qos", QOS_FIELDS),
        )
    except SchedulerError:  # no sacctmgr here, or its database is down: sbatch reports when the limit is reached
        return None
    chosen = known.find_partition(partition) if partition else known.default_partition
    return parse_submit_limit(
        associations,
        levels,
        of_account=of_account,
        account=charged,
        partition=chosen.name if chosen else partition,
        qos=qos,
        partition_qos=chosen.qos if chosen else None,
    )


def parse_cluster(config: str, partitions: str, nodes: str) -> Cluster:
    """Return the cluster that :data:`CONFIG`, :data:`PARTITIONS` and :data:`NODES` print.

    Raises:
        SchedulerError: if the output of one of them is not understood.
    """
    settings = parse_config(config)
    groups = parse_nodes(nodes)
    with _reading("scontrol show config", config):
        common = _Common(settings)
        size = int(settings["MaxArraySize"])
        enforced = set(settings.get("AccountingStorageEnforce", "").split(","))
        return Cluster(
            name=settings["ClusterName"],
            version=settings["SLURM_VERSION"],
            partitions=tuple(
                replace(common.complete(partition), node_groups=groups.get(partition.name, ()))
                for partition in parse_partitions(partitions)
            ),
            max_array_size=size,
            max_array_tasks=_find_most_tasks(settings, size),
            max_jobs=int(settings["MaxJobCount"]),
            min_job_age_s=float(settings["MinJobAge"].split()[0]),
            accounting=settings.get("AccountingStorageType", "").endswith("/slurmdbd"),
            limits_enforced=bool(enforced & {"limits", "safe", "all"}),
        )


def parse_config(text: str) -> Mapping[str, str]:
    """Return the settings that ``scontrol show config`` prints, by name."""
    return {name: value.strip() for name, value in _SETTING.findall(text)}


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions of ``scontrol --oneliner show partition``, without their nodes.

    Raises:
        SchedulerError: if a limit cannot be read.
    """
    return tuple(_parse_partition(line) for line in text.splitlines() if line.startswith("PartitionName="))


def parse_nodes(text: str) -> Mapping[str, tuple[NodeGroup, ...]]:
    """Return the types of nodes in each partition, the most common first, from the output of :data:`NODES`.

    Raises:
        SchedulerError: if a line cannot be read.
    """
    found: dict[str, dict[NodeGroup, tuple[int, int]]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        with _reading("sinfo", line):
            partition, kind, count, up = _parse_node_line(line)
            kinds = found.setdefault(partition, {})
            before = kinds.get(kind, (0, 0))
            kinds[kind] = before[0] + count, before[1] + up
    return {partition: _list_groups(kinds) for partition, kinds in found.items()}


def parse_gpus(text: str) -> tuple[int, str | None]:
    """Return number and model of GPUs in a node's generic resources such as ``gpu:v100:2(S:0-1)``."""
    matches = [match for part in _OUTSIDE_BRACKETS.split(text) if (match := _GRES.fullmatch(part))]
    models = {match["model"] for match in matches}
    return sum(int(match["count"] or 1) for match in matches), models.pop() if len(models) == 1 else None


def parse_submit_limit(
    associations: str,
    levels: str,
    *,
    of_account: str = "",
    account: str | None = None,
    partition: str | None = None,
    qos: str | None = None,
    partition_qos: str | None = None,
) -> int | None:
    """Return how many jobs a user may have submitted, by sacctmgr's associations (of user and account) and QOS.

    A partition's QOS precedes the job's, and that the association: https://slurm.schedmd.com/resource_limits.html

    Raises:
        SchedulerError: if a limit cannot be read.
    """
    own = _find_association(_split(associations, ASSOCIATION_FIELDS), account, partition)
    shared = _find_association(_split(of_account, ASSOCIATION_FIELDS), account, None)
    by_name = {level["Name"]: level for level in _split(levels, QOS_FIELDS)}
    job_qos = by_name.get(qos or _default_qos(own), {})
    order = [by_name.get(partition_qos or "", {}), job_qos]
    if "OverPartQOS" in job_qos.get("Flags", ""):
        order.reverse()
    with _reading("sacctmgr", f"{own} {order}"):
        each = _first_limit([*(level.get("MaxSubmitPU", "") for level in order), own.get("MaxSubmit", "")])
        per_account = _first_limit(level.get("MaxSubmitPA", "") for level in order)
        together = _first_limit(level.get("GrpSubmit", "") for level in (*order, own, shared))
    return min((limit for limit in (each, per_account, together) if limit is not None), default=None)


class _Common:
    """Settings of the configuration that apply to partitions without their own."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.whole_node = settings.get("SelectType") == "select/linear"
        self.memory_per_core = _parse_megabytes(settings.get("DefMemPerCPU", ""))
        self.most_memory = _parse_megabytes(settings.get("MaxMemPerNode", ""))

    def complete(self, partition: Partition) -> Partition:
        return replace(
            partition,
            whole_node=partition.whole_node or self.whole_node,
            default_memory_per_core_bytes=partition.default_memory_per_core_bytes or self.memory_per_core,
            max_memory_per_node_bytes=partition.max_memory_per_node_bytes or self.most_memory,
        )


def _parse_partition(line: str) -> Partition:
    words = _PAIR.split(line)[1:]
    fields = {name: value.strip() for name, value in zip(words[::2], words[1::2], strict=True)}
    with _reading("scontrol show partition", line):
        return Partition(
            name=fields["PartitionName"],
            default=fields.get("Default") == "YES",
            up=fields.get("State", "UP") == "UP" and fields.get("RootOnly") != "YES",
            max_walltime_s=_parse_time(fields.get("MaxTime", "")),
            default_walltime_s=_parse_time(fields.get("DefaultTime", "")),
            max_nodes=_parse_count(fields.get("MaxNodes", "")),
            max_cores_per_node=_parse_count(fields.get("MaxCPUsPerNode", "")),
            max_memory_per_node_bytes=_parse_megabytes(fields.get("MaxMemPerNode", "")),
            default_memory_per_core_bytes=_parse_megabytes(fields.get("DefMemPerCPU", "")),
            whole_node=fields.get("OverSubscribe") == "EXCLUSIVE",
            qos=None if fields.get("QoS", "") in _NO_LIMIT else fields["QoS"],
        )


def _parse_node_line(line: str) -> tuple[str, NodeGroup, int, int]:
    partition, count, cores, shape, memory, state, gres, features = line.split("|", 7)
    gpus, model = parse_gpus(gres)
    sockets, per_socket, threads = map(int, shape.split(":"))
    as_threads = int(cores) > sockets * per_socket
    kind = NodeGroup(
        count=0,
        up=0,
        cores=int(cores),
        memory_bytes=int(memory) * 2**20,
        threads_per_core=threads if as_threads else 1,
        gpus=gpus,
        gpu_model=model,
        features=() if features in _NO_LIMIT else tuple(features.split(",")),
    )
    word = re.match(r"[a-z_]*", state.lower())
    assert word is not None
    return partition, kind, int(count), 0 if word[0] in _OUT else int(count)


def _list_groups(kinds: Mapping[NodeGroup, tuple[int, int]]) -> tuple[NodeGroup, ...]:
    groups = [replace(kind, count=count, up=up) for kind, (count, up) in kinds.items()]
    return tuple(sorted(groups, key=lambda group: -group.count))


def _find_most_tasks(settings: Mapping[str, str], size: int) -> int:
    found = re.search(r"\bmax_array_tasks=(\d+)", settings.get("SchedulerParameters", ""))
    return min(size, int(found[1])) if found else size


def _parse_time(text: str) -> float | None:
    seconds = None if text in _NO_LIMIT else parse_clock(text)
    return None if seconds is None or math.isinf(seconds) else seconds


def _parse_count(text: str) -> int | None:
    return None if text in _NO_LIMIT else int(text)


def _parse_megabytes(text: str) -> int | None:
    return None if text in _NO_LIMIT else parse_size(text, unit="M") or None


def _first_limit(texts: Iterable[str]) -> int | None:
    return next((int(text) for text in texts if text), None)


def _split(text: str, fields: str) -> list[dict[str, str]]:
    names = fields.split(",")
    rows = (line.split("|") for line in text.splitlines() if line)
    return [dict(zip(names, row, strict=False)) for row in rows]


def _find_association(
    rows: Sequence[Mapping[str, str]], account: str | None, partition: str | None
) -> Mapping[str, str]:
    """Return the association of that account, for that partition alone if there is one."""
    named = account and account.lower()  # Slurm stores account names in lower case
    matching = [
        row for row in rows if named in (None, row["Account"].lower()) and row.get("Partition", "") in ("", partition)
    ]
    return max(matching, key=lambda row: row.get("Partition", ""), default={})


def _default_qos(association: Mapping[str, str]) -> str:
    allowed = association.get("QOS", "").split(",")
    return association.get("DefaultQOS") or (allowed[0] if len(allowed) == 1 and allowed[0] else "normal")


def _read_default_account(user: str) -> str | None:
    lines = call(_build_query("user", "DefaultAccount", f"user={user}")).split()
    return lines[0] if lines else None


def _find_user() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container without this user
        return None


def _build_query(kind: str, fields: str, *where: str) -> Sequence[str]:
    return ("sacctmgr", "--noheader", "--parsable2", "show", kind, *where, f"format={fields}")


def _add_cluster(argv: Sequence[str], cluster: str | None) -> Sequence[str]:
    return argv if cluster is None else (argv[0], f"--clusters={cluster}", *argv[1:])


@contextmanager
def _reading(program: str, text: str) -> Iterator[None]:
    try:
        yield
    except KeyError as exc:
        raise SchedulerError(f"{program} does not print {exc.args[0]}, which Slurm does since 20.11") from exc
    except ValueError as exc:
        raise SchedulerError(f"cannot read the output of {program} ({exc}): {text[:200]!r}. Please report it") from exc
