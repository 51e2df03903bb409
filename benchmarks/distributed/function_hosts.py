"""What the host needs for an operation of Megatron-LM: the shortest of its operators, which wait for the host alone.

``python -m benchmarks.distributed.function_hosts`` prints the medians that ``steps/kernels/launch_times.py`` has.
"""

import csv
import gzip
from collections import defaultdict
from statistics import median

from benchmarks.gpus.results import DATA

_FAMILIES = ("gpt", "t5")
_LARGE = ("embedding", "post-process", "final-layernorm")  # operators that are long on every GPU


def measure_hosts() -> tuple[float, float]:
    """Microseconds of an operation, forward and backward."""
    shortest: dict[tuple[str, str], list[float]] = defaultdict(lambda: [float("inf")] * 2)
    with gzip.open(DATA / "aceso_profiles" / "operators.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["family"] in _FAMILIES and not any(word in row["op_name"] for word in _LARGE):
                own = shortest[row["family"], row["op_name"]]
                own[:] = [min(own[0], float(row["forward-compute"])), min(own[1], float(row["backward-compute"]))]
    forward, backward = zip(*shortest.values(), strict=True)
    return median(forward), median(backward)


if __name__ == "__main__":
    print("forward {:.0f} us, backward {:.0f} us".format(*measure_hosts()))
