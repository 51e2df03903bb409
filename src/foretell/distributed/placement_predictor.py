"""Predicts steps on other placements from a table of measured ones, with intervals and warnings."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from foretell.core.errors import ImportDataError
from foretell.core.prediction import Estimate
from foretell.core.warning import PredictionWarning, build_warning
from foretell.distributed.data_parallel import ParallelModel, ParallelTime
from foretell.distributed.measured_range import Distance, find_fittable
from foretell.distributed.placed_steps import PlacedPrediction, PlacedStep, Placement, TimedStep

_MOST_PAIRS = 30  # workloads on clusters to fit at once: more take minutes
_FARTHEST = 2  # times the measured GPUs or batch: beyond it, there is a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPredictor:
    """A fitted model of steps, and its rows."""

    model: ParallelModel
    rows: Sequence[TimedStep]

    @classmethod
    def fit(cls, rows: Sequence[TimedStep], *, workload: str, cluster: str) -> "PlacedPredictor":
        """Fit to rows; those held back, on more GPUs or on another cluster, calibrate the intervals.

        Its intervals are for this workload and cluster.

        Raises:
            ImportDataError: The rows cannot be fitted to.
        """
        if not any(sum(row.placed.gpus) > 1 for row in rows):
            raise ImportDataError(
                f"none of {len(rows)} steps ran on more than one GPU, so the cost of gradients is unknown. "
                "Measure a step on two GPUs, and one on two nodes"
            )
        rows = _choose_rows(rows, workload, cluster)
        measured = any((row.placed.workload, row.placed.cluster) == (workload, cluster) for row in rows)
        kinds = (Distance.MORE_GPUS, Distance.MEASURED) if measured else (Distance.OTHER_CLUSTER,)
        return cls(model=ParallelModel().fit(rows).calibrate(rows, kinds), rows=rows)

    def predict(self, steps: Sequence[PlacedStep], *, level: float = 0.9) -> list[PlacedPrediction]:
        """The time of each step, in order.

        Raises:
            NotFoundError: A workload was not measured.
        """
        times = self.model.predict(steps, level=level)
        return [self._build(step, time, level) for step, time in zip(steps, times, strict=True)]

    def _build(self, step: PlacedStep, time: ParallelTime, level: float) -> PlacedPrediction:
        measured = [row.step_s for row in self._list_like(step) if row.placed.batch == step.batch]
        return PlacedPrediction(
            step=step,
            step_s=Estimate(value=time.step_s, low=time.low_s, high=time.high_s, level=level),
            compute_s=time.compute_s,
            exposed_s=time.exposed_s,
            measured_s=statistics.median(measured) if measured else None,
            warnings=tuple(self._list_warnings(step)),
        )

    def _list_like(self, step: PlacedStep) -> list[TimedStep]:
        key = _get_place(step)
        return [row for row in self.rows if _get_place(row.placed) == key]

    def _list_warnings(self, step: PlacedStep) -> list[PredictionWarning]:
        here = [row.placed for row in self.rows if row.placed.cluster == step.cluster]
        own = [placed for placed in here if placed.workload == step.workload]
        if not here:
            known = sorted({row.placed.cluster for row in self.rows})
            text = f"No step on {step.cluster} was measured, only on {', '.join(known)}: the interval is wide."
            return [
                build_warning("cluster-not-measured", text, cluster=step.cluster, measured=known),
                *self._list_unused(step),
            ]
        if not own:
            text = f"{step.workload} was not measured on {step.cluster}, only on other clusters."
            return [build_warning("workload-not-measured", text, workload=step.workload, cluster=step.cluster)]
        return [*_warn_of_placement(step, here), *_warn_of_batch(step, own)]

    def _list_unused(self, step: PlacedStep) -> list[PredictionWarning]:
        """Figures that have no effect, because no row has them."""
        rows = [row.placed for row in self.rows]
        unused = []
        if step.device is not None and not any(placed.device for placed in rows):
            text = f"No row has a device: the figures of {step.device.name} have no effect."
            unused.append(build_warning("figures-not-used", text, column="device"))
        if step.link_bytes_per_s is not None and not any(placed.link_bytes_per_s for placed in rows):
            text = "No row has a link: its rate has no effect."
            unused.append(build_warning("figures-not-used", text, column="link"))
        return unused


def _choose_rows(rows: Sequence[TimedStep], workload: str, cluster: str) -> list[TimedStep]:
    """Rows to fit to; of many workloads and clusters, those nearest to the requested ones."""
    known = find_fittable(rows) | {workload}
    counts = Counter(
        (row.placed.workload, row.placed.cluster) for row in rows if row.placed.workload in known
    ).most_common()
    near = sorted(counts, key=lambda each: (each[0][0] != workload) + (each[0][1] != cluster))  # stable: most first
    chosen = {pair for pair, _ in near[:_MOST_PAIRS]}
    return [row for row in rows if (row.placed.workload, row.placed.cluster) in chosen]


def _get_place(step: PlacedStep) -> tuple[str, str, Placement]:
    return step.workload, step.cluster, tuple(sorted(step.gpus))


def _warn_of_placement(step: PlacedStep, here: Sequence[PlacedStep]) -> list[PredictionWarning]:
    if len(step.gpus) > 1 and not any(len(placed.gpus) > 1 for placed in here):
        text = (
            f"No step on several nodes of {step.cluster} was measured: the cost of the network between them is a "
            "guess. Measure one step on two nodes."
        )
        return [build_warning("nodes-not-measured", text, cluster=step.cluster, nodes=len(step.gpus))]
    full, most = max(max(placed.gpus) for placed in here), max(sum(placed.gpus) for placed in here)
    if max(step.gpus) > full:
        text = f"More GPUs on a node than the {full} that were measured on {step.cluster}."
        return [_warn_of_range("gpus_per_node", max(step.gpus), text, high=full)]
    if sum(step.gpus) > _FARTHEST * most:
        text = f"More than {_FARTHEST} times the {most} GPUs that were measured on {step.cluster}."
        return [_warn_of_range("gpus", sum(step.gpus), text, high=most)]
    return []


def _warn_of_batch(step: PlacedStep, own: Sequence[PlacedStep]) -> list[PredictionWarning]:
    low, high = min(placed.batch for placed in own), max(placed.batch for placed in own)
    if low / _FARTHEST <= step.batch <= high * _FARTHEST:
        return []
    measured = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    text = f"A batch of {step.batch:g}; measured: {measured}."
    return [_warn_of_range("batch", step.batch, text, low=low, high=high)]


def _warn_of_range(name: str, value: float, text: str, **limits: float) -> PredictionWarning:
    return build_warning("outside-measured-range", text, name=name, value=value, **limits)
