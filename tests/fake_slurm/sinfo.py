"""The fake ``sinfo``."""

import sys

from tests.fake_slurm.control import check_controller
from tests.fake_slurm.machine import PARTITIONS, Partition
from tests.fake_slurm.options import parse_options
from tests.fake_slurm.state import RefusalError, State

NAMES = "format partition clusters"
FLAGS = "noheader Node all exact"
SHORT = "h=noheader o=format p=partition N=Node a=all e=exact M=clusters"
_HEADERS = {
    "P": "PARTITION",
    "R": "PARTITION",
    "a": "AVAIL",
    "l": "TIMELIMIT",
    "L": "DEFAULTTIME",
    "D": "NODES",
    "c": "CPUS",
    "m": "MEMORY",
    "G": "GRES",
    "N": "NODELIST",
    "f": "AVAIL_FEATURES",
    "F": "NODES(A/I/O/T)",
    "C": "CPUS(A/I/O/T)",
    "T": "STATE",
    "t": "STATE",
    "z": "S:C:T",
    "X": "SOCKETS",
    "Y": "CORES",
    "Z": "THREADS",
}


def main(words: list[str]) -> None:
    options, _ = parse_options(words, program="sinfo", names=NAMES, flags=FLAGS, short=SHORT)
    check_controller("slurm_load_partitions:")
    pattern = options.get("format", "%P %a %l %D %T %N")
    lines = [] if "noheader" in options else [_fill(pattern, _HEADERS)]
    for partition in PARTITIONS.values():
        if "partition" not in options or partition.name in options["partition"].split(","):
            groups = [(node,) for node in partition.nodes] if "Node" in options else [partition.nodes]
            lines += [_fill(pattern, _describe(partition, nodes)) for nodes in groups]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _describe(partition: Partition, nodes: tuple[str, ...]) -> dict[str, str]:
    count, cpus = len(nodes), partition.cpus * len(nodes)
    down = State().down
    return {
        "P": partition.name + "*" * (partition.name == "owens"),
        "R": partition.name,
        "a": "up",
        "l": "1:00:00" if partition.max_min == 60 else "7-00:00:00",
        "L": "5:00" if partition.default_min == 5 else "1:00:00",
        "D": str(count),
        "c": str(partition.cpus),
        "m": str(partition.memory_mb),
        "G": partition.gpus or "(null)",
        "N": nodes[0] if count == 1 else f"{nodes[0][0]}[{nodes[0][1:]}-{nodes[-1][1:]}]",
        "f": partition.features,
        "F": f"0/{count}/0/{count}",
        "C": f"0/{cpus}/0/{cpus}",
        "T": "down" if nodes[0] in down else "idle",
        "t": "down" if nodes[0] in down else "idle",
        "z": f"2:{partition.cpus // 2}:1",
        "X": "2",
        "Y": str(partition.cpus // 2),
        "Z": "1",
    }


def _fill(pattern: str, values: dict[str, str]) -> str:
    before, *parts = pattern.split("%")
    text = before
    for part in parts:
        rest = part.lstrip(".0123456789")
        if rest[:1] not in values:
            raise RefusalError(f"sinfo: error: Invalid node format specification: {rest[:1]}")
        text += values[rest[0]] + rest[1:]
    return text
