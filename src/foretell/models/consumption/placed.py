"""Steps of data-parallel training as columns that models read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.entities.placed import PlacedStep
from foretell.entities.workload import Floats
from foretell.errors import NotFoundError

Ints = NDArray[np.int64]

_USUAL_LINK = 4e9  # bytes a second, between 10 and 100 Gb/s: what nodes have whose link nobody named


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Steps as columns. Levels are numbers of names; -1 is a name never seen."""

    levels: Mapping[str, Ints]
    batch: Floats
    count: Floats
    nodes: Floats
    most: Floats  # GPUs of the fullest node
    flops: Floats  # logs, of the mean of devices
    bandwidth: Floats
    link: Floats

    def take(self, chosen: Ints) -> "Rows":
        levels = {name: values[chosen] for name, values in self.levels.items()}
        rest = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return Rows(levels=levels, **rest)


_COLUMNS = ("batch", "count", "nodes", "most", "flops", "bandwidth", "link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What was seen: workloads, clusters and pairs of them; and what figures are compared with."""

    workload: Mapping[str, int]
    cluster: Mapping[str, int]
    pair: Mapping[tuple[str, str], int]
    scale: Mapping[str, float | None]

    @classmethod
    def find(cls, steps: Sequence[PlacedStep]) -> "Names":
        names = [
            _number({step.workload for step in steps}),
            _number({step.cluster for step in steps}),
        ]
        pairs = sorted({(step.workload, step.cluster) for step in steps})
        clusters = {step.cluster: step for step in steps}.values()
        figures = {name: [each[name] for each in map(_figures, clusters)] for name in ("flops", "bandwidth")}
        scale = {name: _mean_log(values) for name, values in figures.items()} | {"link": float(np.log(_USUAL_LINK))}
        return cls(
            workload=names[0], cluster=names[1], pair={pair: number for number, pair in enumerate(pairs)}, scale=scale
        )

    def sizes(self) -> dict[str, int]:
        return {
            "all": 1,
            "workload": len(self.workload),
            "cluster": len(self.cluster),
            "pair": len(self.pair),
        }

    def number(self, steps: Sequence[PlacedStep]) -> Rows:
        """The steps as columns.

        Raises:
            NotFoundError: if a workload was never seen.
        """
        for step in steps:
            if step.workload not in self.workload:
                raise NotFoundError("workload", step.workload, known=self.workload, hint="Measure steps of it first.")
        levels = {
            "all": np.zeros(len(steps), dtype=np.int64),
            "workload": np.array([self.workload[step.workload] for step in steps], dtype=np.int64),
            "cluster": np.array([self.cluster.get(step.cluster, -1) for step in steps], dtype=np.int64),
            "pair": np.array([self.pair.get((step.workload, step.cluster), -1) for step in steps], dtype=np.int64),
        }
        figures = {
            name: np.array([_compare(_figures(step)[name], self.scale[name]) for step in steps])
            for name in ("flops", "bandwidth", "link")
        }
        return Rows(
            levels=levels,
            batch=np.array([step.batch for step in steps], dtype=float),
            count=np.array([sum(step.gpus) for step in steps], dtype=float),
            nodes=np.array([len(step.gpus) for step in steps], dtype=float),
            most=np.array([max(step.gpus) for step in steps], dtype=float),
            **figures,
        )


def _number(names: set[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


def _figures(step: PlacedStep) -> dict[str, float | None]:
    device = step.device
    return {
        "flops": device.peak_flops if device else None,
        "bandwidth": device.bandwidth_bytes if device else None,
        "link": step.link_bytes_per_s,
    }


def _mean_log(values: Sequence[float | None]) -> float | None:
    known = [np.log(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _compare(value: float | None, scale: float | None) -> float:
    """A figure that nobody named counts as the mean of those named."""
    return 0.0 if value is None or scale is None else float(np.log(value) - scale)
