"""What trains a network: a GPU or a CPU, by its public figures."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device by its figures, as its maker states them."""

    name: str
    kind: str  # gpu or cpu
    peak_flops: float  # in single precision, a second
    bandwidth_bytes: float  # of its memory, a second
    units: int  # multiprocessors, or cores
    memory_bytes: int
