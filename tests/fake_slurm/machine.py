"""Nodes, partitions and accounts of the fake cluster, the same as those of the real one in ``tests/slurm``."""

from tests.fake_slurm.state import RefusalError, find_fault

ACCOUNTS = {"pas0001": None, "pas0002": None, "small": 20}
DEFAULT_ACCOUNT = "PAS0001"


class Partition:
    """Equal nodes and what may be asked of them."""

    def __init__(
        self,
        name: str,
        nodes: tuple[str, ...],
        *,
        cpus: int,
        memory_mb: int,
        gpus: str = "",
        features: str,
        memory_per_cpu_mb: int = 4315,
        max_min: int = 10080,
        default_min: int = 60,
    ) -> None:
        self.name = name
        self.nodes = nodes
        self.cpus = cpus
        self.memory_mb = memory_mb
        self.gpus = gpus
        self.features = features
        self.memory_per_cpu_mb = memory_per_cpu_mb
        self.max_min = max_min
        self.default_min = default_min


_OWENS = Partition("owens", ("o0001", "o0002"), cpus=28, memory_mb=120820, features="owens,cpu,c6420")
_OWENS_GPU = Partition("owens-gpu", ("o0649",), cpus=28, memory_mb=120820, gpus="gpu:p100:1", features="owens,gpu,p100")
_PITZER = Partition("pitzer", ("p0501",), cpus=48, memory_mb=182272, features="pitzer,cpu,c48", memory_per_cpu_mb=3797)
_PITZER_GPU = Partition(
    "pitzer-gpu",
    ("p0301",),
    cpus=48,
    memory_mb=371712,
    gpus="gpu:v100:2",
    features="pitzer,gpu,v100,c48",
    memory_per_cpu_mb=7744,
)
# The real one has a node of Pitzer in it, too.
_DEBUG = Partition(
    "debug", ("o0001", "o0002"), cpus=28, memory_mb=120820, features="owens,cpu,c6420", max_min=60, default_min=5
)
PARTITIONS = {partition.name: partition for partition in (_OWENS, _OWENS_GPU, _PITZER, _PITZER_GPU, _DEBUG)}
NODES = {
    node: partition for partition in (_DEBUG, _OWENS, _OWENS_GPU, _PITZER, _PITZER_GPU) for node in partition.nodes
}


def find_max_submit(account: str) -> int | None:
    """How many jobs an account may have in the queue."""
    if account not in ACCOUNTS:
        raise RefusalError(
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
        )
    fault = find_fault("max-submit")
    return ACCOUNTS[account] if fault is None else int(fault)


def get_max_array_size() -> int:
    return int(find_fault("max-array-size") or 1001)
