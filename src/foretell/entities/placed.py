"""Steps of data-parallel training by where they run: as they are asked for, measured and told."""

import re
from dataclasses import dataclass

from foretell.entities.device import Device
from foretell.entities.prediction import Estimate

Placement = tuple[int, ...]  # GPUs on each node

_EQUAL = re.compile(r"(\d+)x(\d+)")
_EACH = re.compile(r"\d+(\+\d+)*")
_DIGITS = 9  # more are more than any
_MOST_NODES, _MOST_GPUS = 10_000, 1_000  # of a node: what no cluster has is a slip of the pen


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """A step that is asked for: ``gpus`` on each node, each with ``batch`` samples."""

    workload: str
    cluster: str
    batch: float
    gpus: Placement
    device: Device | None = None  # nobody named one
    link_bytes_per_s: float | None = None  # between nodes; nobody named one


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A step that was measured; ``sync_s`` is the part of it in which computing waits for gradients."""

    placed: PlacedStep
    step_s: float
    sync_s: float | None = None  # nobody measured it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPrediction:
    """What is told of a step: its time, and the parts that compute and that wait for gradients.

    ``measured_s`` is the median of the very same step where it was measured. ``doubts`` are plain sentences: where the
    question lies outside what was measured.
    """

    step: PlacedStep
    step_s: Estimate
    compute_s: float
    exposed_s: float
    measured_s: float | None = None
    doubts: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """GPUs on all nodes."""
        return sum(self.step.gpus)

    @property
    def examples_per_s(self) -> float:
        """Of all GPUs."""
        return self.count * self.step.batch / self.step_s.value

    @property
    def waits(self) -> float:
        """The share of a step in which computing waits for gradients."""
        return self.exposed_s / self.step_s.value


def parse_placement(text: str) -> Placement:
    """GPUs on each node from ``"8"``, ``"4+2"`` (on two nodes) or ``"2x8"`` (two nodes of 8).

    Raises:
        ValueError: if it is none of these, a node has none, or there are more than any cluster has.
    """
    spaceless = "".join(text.split())
    nodes, each = 1, spaceless
    if equal := _EQUAL.fullmatch(spaceless):
        nodes, each = int(equal[1][:_DIGITS]), equal[2]
    counts = [int(word[:_DIGITS]) for word in each.split("+")] if _EACH.fullmatch(each) else []
    if not counts or not 1 <= nodes * len(counts) <= _MOST_NODES or not 1 <= min(counts) <= max(counts) <= _MOST_GPUS:
        raise ValueError(
            f"{text!r} is no placement; write for example 8, 4+2 (two nodes) or 2x8 (two nodes of 8), with at most "
            f"{_MOST_GPUS:,} GPUs on a node and {_MOST_NODES:,} nodes"
        )
    return nodes * tuple(sorted(counts, reverse=True))


def render_placement(gpus: Placement) -> str:
    """``8``, ``4+2``, ``2x8``; what :func:`parse_placement` reads."""
    if len(gpus) > 1 and len(set(gpus)) == 1:
        return f"{len(gpus)}x{gpus[0]}"
    return "+".join(map(str, gpus))
