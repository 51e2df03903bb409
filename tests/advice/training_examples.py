"""A training whose time follows a law, at a site with round prices."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from foretell.advice.training_candidates import Candidate, CandidateSearch, Obstacle
from foretell.advice.training_job import TrainingJob
from foretell.advice.training_plan import RecordedTraining
from foretell.core.errors import Mistake, SpecError
from foretell.core.layouts import Layout
from foretell.core.prediction import Estimate
from foretell.core.site import Billing, NodeType, Site
from foretell.core.topology import Topology
from foretell.core.workload import Workload
from foretell.distributed.layout_search import LayoutChoice
from foretell.distributed.parallel_results import ParallelStep

LEVEL = 0.9
SPEEDS = {"A100-80": 4.0, "V100-16": 1.0, "H100": 8.0}  # examples that a GPU computes in a millisecond
GIB = 2**30


def estimate(value: float, *, spread: float = 1.0) -> Estimate:
    return Estimate(value=value, low=value / spread, high=value * spread, level=LEVEL)


WORKLOAD = Workload(name="net.py:build", operators=(), batch=64, settings={"precision": "fp32"})


def build_training(**changes: object) -> TrainingJob:
    """A job of 10 epochs of 64,000 samples: 10,000 steps of 64 on one GPU."""
    fields: dict[str, object] = {
        "name": "net.py:build",
        "batch": 64,
        "samples": 64_000,
        "epochs": 10,
        "startup": estimate(100.0, spread=2.0),
        "workers": 3,
        "host": estimate(2.0 * GIB, spread=2.0),
        "command": ("python", "net.py"),
    }
    return TrainingJob(**{**fields, **changes})  # type: ignore[arg-type]


def build_node(name: str, **changes: object) -> NodeType:
    fields: dict[str, object] = {
        "name": name,
        "partition": name,
        "cores": 32,
        "memory_bytes": 256 * GIB,
        "gpus": 4,
        "gpu_model": "NVIDIA A100",
        "gpu_memory_bytes": 80 * GIB,
        "max_nodes": 4,
        "billing": Billing.CORE_HOURS,
        "price_per_gpu_h": Decimal(1),
        "max_walltime_s": 7 * 86400.0,
        "network_bytes": 25e9,
    }
    return NodeType(**{**fields, **changes})  # type: ignore[arg-type]


CHEAP = build_node("cheap", gpus=2, gpu_model="NVIDIA V100", gpu_memory_bytes=16 * GIB, price_per_gpu_h=Decimal("0.2"))
CPU = build_node("cpu", gpus=0, gpu_model=None, gpu_memory_bytes=None, cpu_model="Unknown 1")


def build_site(*nodes: NodeType, scheduler: str = "slurm", currency: str = "USD") -> Site:
    chosen = nodes or (build_node("fast"), CHEAP)
    return Site(name="here", title="Here", scheduler=scheduler, node_types=chosen, currency=currency)


@dataclass(frozen=True)
class LawOfLayouts:
    """Steps that take what their examples take, and a fixed time for each further GPU; a V100 has too little memory."""

    spread: float = 1.3
    needed: float = 10.0 * GIB
    per_gpu_s: float = 1e-4

    def predict(self, topology: Topology, layout: Layout, *, batch: int) -> LayoutChoice:
        if batch % layout.copies:
            expected = f"a multiple of {layout.copies}"
            raise SpecError("the layout", [Mistake(place="batch", found=str(batch), expected=expected)])
        seconds = batch / layout.gpus / SPEEDS[topology.device.name] / 1000 + self.per_gpu_s * (layout.gpus - 1)
        sharing = layout.copies if layout.data_parallel == "fsdp" else 1
        step = ParallelStep(
            workload=WORKLOAD,
            layout=layout,
            topology=topology,
            step=estimate(seconds * (1.1 if sharing > 1 else 1.0), spread=self.spread),
            parts={"compute": seconds},
        )
        needed = self.needed / sharing
        fits = needed <= topology.device.usable_memory_bytes
        return LayoutChoice(step=step, needed=estimate(needed, spread=1.1), risk=0.0 if fits else 1.0, fits=fits)

    def rank(self, topology: Topology, *, gpus: int, batch: int, most: int) -> list[LayoutChoice]:
        names = ("ddp", "fsdp") if gpus > 1 else ("",)
        found = [self.predict(topology, Layout(gpus=gpus, data_parallel=name), batch=batch) for name in names]
        return sorted(found, key=lambda choice: (not choice.fits, choice.step.step.value))[:most]


def search_site(
    site: Site, job: TrainingJob | None = None, *, layouts: LawOfLayouts | None = None, layout: str | None = None
) -> Sequence[Candidate | Obstacle]:
    """What is tried at a site."""
    recorded = RecordedTraining(workload=WORKLOAD)
    search = CandidateSearch(job or build_training(), recorded, layouts or LawOfLayouts(), layout=layout)
    return list(search.search(site, lambda _: None))
