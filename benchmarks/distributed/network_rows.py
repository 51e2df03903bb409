"""All-reduces between nodes of known networks, as users of nccl-tests published them."""

from benchmarks.distributed.collective_rows import CollectiveRow
from foretell.core.devices import get_device
from foretell.core.topology import Group, Topology
from foretell.distributed.collective_times import Collective

_MIB = 1 << 20
# Device, GPUs of a node, bytes a second of the network for each, then of each row: nodes, bytes, seconds.
_PUBLISHED = {
    # One H100 in each node, NDR InfiniBand: https://github.com/NVIDIA/nccl-tests/issues/232
    "nccl-tests 232": (
        ("H100", 1, 50e9),
        (
            (2, 2 * _MIB, 113.2e-6),
            (2, 4 * _MIB, 154.4e-6),
            (2, 8 * _MIB, 231.4e-6),
            (2, 16 * _MIB, 420.5e-6),
            (2, 32 * _MIB, 812.3e-6),
        ),
    ),
    # Instances p4d.24xlarge, 400 Gb/s EFA for eight A100: https://github.com/NVIDIA/nccl/issues/527
    "nccl 527": (
        ("A100-40", 8, 6.25e9),
        ((2, 1024 * _MIB, 35.215e-3), (3, 1024 * _MIB, 64.782e-3), (4, 1024 * _MIB, 70.253e-3)),
    ),
    # Four HDR adapters for eight A100, 96 GB/s of bus bandwidth: https://github.com/NVIDIA/nccl-tests/issues/119
    "nccl-tests 119": (("A100-40", 8, 12.5e9), ((3, 128 * _MIB, 2 * 23 / 24 * 128 * _MIB / 96e9),)),
    # 350 GB/s of bus bandwidth on 248 nodes: https://github.com/NVIDIA/nccl-tests/issues/283
    "nccl-tests 283": (("H200", 8, 50e9), ((248, 512 * _MIB, 2 * 1983 / 1984 * 512 * _MIB / 350e9),)),
}


def read_published() -> list[CollectiveRow]:
    """All of them."""
    return [
        CollectiveRow(
            source=source,
            device=device,
            operation=Collective.ALL_REDUCE,
            bytes_=float(bytes_),
            group=Group(gpus=nodes * in_node, nodes=nodes),
            seconds=seconds,
            topology=Topology(device=get_device(device), gpus_per_node=in_node, network_bytes=rate),
        )
        for source, ((device, in_node, rate), rows) in _PUBLISHED.items()
        for nodes, bytes_, seconds in rows
    ]
