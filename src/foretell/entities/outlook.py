"""A distributed training as it is asked for, beside what a user may change of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from foretell.entities.consumption import ConsumptionPrediction


class Change(StrEnum):
    """What may be another."""

    LINK = "link"
    WORKERS = "workers"
    SERVERS = "servers"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a training consumes as asked, and with other links, workers, servers and batches.

    Each row of ``others`` changes one thing only, from little to much, and has what was asked for among it.
    """

    asked: ConsumptionPrediction
    others: Mapping[Change, tuple[ConsumptionPrediction, ...]] = field(default_factory=dict)
    curves: bool = True  # whether others are to be shown, and not only to tell what limits

    @property
    def shown(self) -> Mapping[Change, tuple[ConsumptionPrediction, ...]]:
        """Those of the others that are to be shown."""
        return self.others if self.curves else {}
