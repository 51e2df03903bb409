from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pytest

from foretell.advice.offers import Choice
from foretell.core.prediction import Estimate, Prediction, Request
from foretell.core.run import Allocation
from foretell.core.site import Billing, NodeType, Site

Option = tuple[int, float, float]  # cores, seconds, memory in GiB
BuildChoice = Callable[..., Choice]

_GIB = 2**30


@pytest.fixture(scope="session")
def build_choice() -> BuildChoice:
    """A site of one node type that charges a dollar a core-hour, and a prediction for each option."""

    def build(
        options: Sequence[Option],
        *,
        measured: Sequence[bool] | None = None,
        max_walltime_s: float | None = None,
        currency: str = "USD",
        spread: float = 1.2,
    ) -> Choice:
        node = NodeType(
            name="node",
            partition="batch",
            cores=64,
            memory_bytes=64 * _GIB,
            max_walltime_s=max_walltime_s,
            billing=Billing.CORE_HOURS,
            price_per_core_h=Decimal(1),
            memory_per_core_bytes=4 * _GIB,
        )
        placed = [(node, Allocation(cores=cores, partition="batch", node_type="node")) for cores, _, _ in options]
        return Choice(
            app="demo",
            site=Site(name="here", title="Here", scheduler="slurm", node_types=(node,), currency=currency),
            options=placed,
            predictions=[
                _predict(allocation, seconds, memory * _GIB, spread)
                for (_, allocation), (_, seconds, memory) in zip(placed, options, strict=True)
            ],
            measured=[True] * len(options) if measured is None else measured,
            risk=lambda walltime_s, memory: np.full(len(walltime_s), 0.05),
        )

    return build


def _predict(allocation: Allocation, seconds: float, memory: float, spread: float) -> Prediction:
    time_s = Estimate(value=seconds, low=seconds / spread, high=seconds * spread, level=0.9)
    size = Estimate(value=memory, low=memory / spread, high=memory * spread, level=0.9)
    return Prediction(
        parameters={"n": 1},
        allocation=allocation,
        elapsed_s=time_s,
        peak_memory_bytes=size if memory else None,
        request=Request(walltime_s=time_s.high, memory_bytes=int(size.high) if memory else None),
        basic=time_s,
    )
