"""What a scheduler says of its own cluster: its partitions, the nodes behind them, and how much may be handed to it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of one kind behind a partition; ``up`` of the ``count`` can take jobs at the moment.

    ``cores`` are what the scheduler hands out, which may be hardware threads: then ``threads_per_core`` is not 1.
    ``gpu_model`` is the scheduler's word for it; ``None`` if it has none, or the GPUs of a node differ.
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
    """A queue with its limits; ``None`` where there is none. ``up``: users' jobs can start in it.

    ``qos`` names the quality of service whose limits hold for every job in it.
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

    An array's indices stay below ``max_array_size``, and it has at most ``max_array_tasks`` tasks; 0 means no arrays.
    ``max_jobs`` is the most the scheduler keeps of all users together, and each ended job for ``min_job_age_s``.
    ``limits_enforced``: what accounting limits for users and accounts is refused, not only written down.
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
