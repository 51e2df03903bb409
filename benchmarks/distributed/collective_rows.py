"""Measured times of collectives: the tables of four sources, in one form."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.gpus.results import DATA
from foretell.core.devices import get_device
from foretell.core.topology import Group, Topology
from foretell.distributed.collective_times import Collective

MIB = float(1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One measured operation."""

    source: str
    device: str  # its name in the catalogue
    operation: Collective
    bytes_: float  # as CollectiveTimes counts them
    group: Group
    seconds: float
    topology: Topology = field(repr=False)

    @property
    def crosses(self) -> bool:
        """Whether the group is on several nodes."""
        return self.group.nodes > 1


@cache
def read_rows() -> tuple[CollectiveRow, ...]:
    """All rows that models are fitted to and judged by."""
    return (*_read_aiconfigurator(), *_read_xla(), *_read_vidur(), *_read_aceso())


_NVIDIA = {
    "NVIDIA A100-SXM4-80GB": "A100-80",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H200": "H200",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GB200": "GB200",
    "NVIDIA GB300": "GB300",
}
_NCCL = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALL_TO_ALL,
}


def _read_aiconfigurator() -> list[CollectiveRow]:
    """Of nccl-tests; the median of repeated rows. Half precision only: rows of int8 differ by 0 to 8 %.

    Message sizes are in elements.
    """
    table = pd.read_parquet(DATA / "aiconfigurator" / "nccl_perf.parquet")
    table = table[table["nccl_dtype"] == "half"]
    keys = ["device", "op_name", "num_gpus", "message_size"]
    times = table.groupby(keys, observed=True)["latency"].median().reset_index()
    return [
        _build_row(
            "aiconfigurator",
            _NVIDIA[row["device"]],
            _NCCL[row["op_name"]],
            2.0 * row["message_size"],
            Group(gpus=row["num_gpus"]),
            row["latency"] / 1e3,
        )
        for row in times.to_dict("records")
    ]


_XLA_DEVICES = {"sm_90": "H100", "sm_100_B200": "B200", "sm_100_GB200": "GB200", "sm_103": "GB300", "gfx950": "MI355X"}
_XLA = {
    "all-reduce": Collective.ALL_REDUCE,
    "all-gather": Collective.ALL_GATHER,
    "reduce-scatter": Collective.REDUCE_SCATTER,
    "all-to-all": Collective.ALL_TO_ALL,
    "collective-permute": Collective.SEND,
}
_XLA_QUANTUM, _FEWEST_QUANTA = 1e7, 20


def _read_xla() -> list[CollectiveRow]:
    """The median of repeated rows.

    Sizes of a reduce-scatter are of its result, rates are of its input. Left out: rates of GB200 and GB300 that are
    rounded to less than 20 steps of 10 MB/s; their permutations, whose times fall by up to 45 % as messages grow, as
    their pairs of GPUs are not stated; all-reduces in bfloat16 of gfx950, which repeat those in float.
    """
    table = pd.read_csv(DATA / "xla_perf_tables" / "collectives.csv.gz")
    table["device"] = table["device"].map(_XLA_DEVICES)
    table["gpus"] = table["per_group"].fillna(2).astype(int)
    rack = table["device"].isin(["GB200", "GB300"])
    table = table[
        (table["element_type"] == "F32")
        & ~(rack & (table["opcode"] == "collective-permute"))
        & (table["bytes_per_s"] >= np.where(rack, _FEWEST_QUANTA * _XLA_QUANTUM, 1.0))
    ]
    scattered = np.where(table["opcode"] == "reduce-scatter", table["gpus"], 1)
    table = table.assign(bytes_=4.0 * table["dims"] * scattered)
    table["seconds"] = table["bytes_"] / table["bytes_per_s"]
    times = table.groupby(["device", "opcode", "gpus", "bytes_"])["seconds"].median().reset_index()
    return [
        _build_row("xla", row["device"], _XLA[row["opcode"]], row["bytes_"], Group(gpus=row["gpus"]), row["seconds"])
        for row in times.to_dict("records")
    ]


_VIDUR_DEVICES = {
    "a100_dgx": "A100-80",
    "h100_dgx": "H100",
    "a100_pairwise_nvlink": "A100-PCIe-80",
    "h100_pairwise_nvlink": "H100-NVL",
}
_VIDUR = {"all_reduce": Collective.ALL_REDUCE, "send_recv": Collective.SEND}
_HOST_BOUND = 16 * MIB  # below this, times within a node do not grow with the message: the host launches no faster


def _read_vidur() -> list[CollectiveRow]:
    """The median of each half octave.

    Left out: messages within a node that the host was too slow for; sends between two nodes of pairs of A100 and H100,
    which are the same rows, copied, at a tenth of what their networks do.
    """
    table = pd.read_csv(DATA / "vidur_profiling" / "collectives.csv.gz")
    table["nodes"] = table["num_workers"] // table["devices_per_node"]
    pairs = table["system"].str.endswith("pairwise_nvlink")
    copied = (table["system"] == "h100_pairwise_nvlink") & (table["collective"] == "send_recv")
    table = table[(table["nodes"] > 1) | (table["size"] >= _HOST_BOUND)]
    table = table[~(pairs & (table["nodes"] > 1) | copied).loc[table.index]]
    table = table.assign(half=np.round(2 * np.log2(table["size"])))
    keys = ["system", "collective", "num_workers", "nodes", "half"]
    times = table.groupby(keys)[["size", "median_ms"]].median().reset_index()
    return [
        _build_row(
            "vidur",
            _VIDUR_DEVICES[row["system"]],
            _VIDUR[row["collective"]],
            row["size"],
            Group(gpus=row["num_workers"], nodes=row["nodes"]),
            row["median_ms"] / 1e3,
        )
        for row in times.to_dict("records")
    ]


def _read_aceso() -> list[CollectiveRow]:
    """All-reduces of V100 with NVLink: the median of each half octave.

    Left out: times of 1e9, which mean out of memory; sizes rounded to 0 or 1 MB; gathers, scatters and all-to-alls,
    whose times include copies that divide and join tensors (their bus bandwidth is 30 % below that of all-reduces).
    """
    table = pd.read_csv(DATA / "aceso_profiles" / "collectives.csv")
    table.columns = pd.Index(["model", "op", "gpus", "mb", "ms"])
    table = table[(table["op"] == "all_reduce") & (table["ms"] < 1e8) & (table["mb"] > 1)]
    table = table.assign(half=np.round(2 * np.log2(table["mb"])))
    times = table.groupby(["gpus", "half"])[["mb", "ms"]].median().reset_index()
    return [
        _build_row("aceso", "V100-32", Collective.ALL_REDUCE, row["mb"] * MIB, Group(gpus=row["gpus"]), row["ms"] / 1e3)
        for row in times.to_dict("records")
    ]


_BRIDGED = {"A100-PCIe-80": 300e9, "H100-NVL": 300e9}  # NVLink bridges between pairs; 600 GB/s in both directions
_NETWORKS = {"A100-80": 12.5e9}  # of two nodes; not stated: one GPU of each sends 8 GB/s, as on 100 Gb/s


def _build_row(
    source: str, device: str, operation: Collective, bytes_: float, group: Group, seconds: float
) -> CollectiveRow:
    bridged = _BRIDGED.get(device, 0.0) if group.gpus == 2 else 0.0
    node = 2 if bridged else 8
    network = _NETWORKS.get(device, 0.0) if group.nodes > 1 else 0.0
    topology = Topology(device=get_device(device), gpus_per_node=node, link_bytes=bridged, network_bytes=network)
    return CollectiveRow(
        source=source,
        device=device,
        operation=operation,
        bytes_=float(bytes_),
        group=group,
        seconds=float(seconds),
        topology=topology,
    )
