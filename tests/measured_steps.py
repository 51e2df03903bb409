"""Steps of data-parallel training by a law known beforehand: a batch, and a ring that waits for its slowest link."""

from collections.abc import Iterable

from foretell.distributed.placed_steps import PlacedStep, Placement, TimedStep

SAMPLE_S, HOST_S = 0.01, 0.02
BYTES, BUS, LINK = 4e8, 1e10, 2e9
ONE_NODE: tuple[Placement, ...] = ((1,), (2,), (4,))
TWO_NODES: tuple[Placement, ...] = (*ONE_NODE, (1, 1), (2, 2), (4, 4))


def place(gpus: Placement, batch: float = 16, *, workload: str = "net", cluster: str = "lab") -> PlacedStep:
    return PlacedStep(workload=workload, cluster=cluster, batch=batch, gpus=gpus)


def compute_step(step: PlacedStep) -> float:
    """What it takes: half of computing hides what is sent."""
    count = sum(step.gpus)
    compute = HOST_S + SAMPLE_S * step.batch
    sent = BYTES / (BUS if len(step.gpus) == 1 else LINK) * 2 * (count - 1) / count
    return compute + max(0.0, sent - 0.5 * compute)


def measure(
    placements: Iterable[Placement],
    batches: Iterable[float] = (4, 8, 16, 32),
    *,
    workload: str = "net",
    cluster: str = "lab",
) -> list[TimedStep]:
    batches = tuple(batches)
    steps = [place(gpus, batch, workload=workload, cluster=cluster) for gpus in placements for batch in batches]
    return [TimedStep(placed=step, step_s=compute_step(step)) for step in steps]
