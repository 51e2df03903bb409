"""How long a script trains: counts that its loops or its trainer show."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCounts:
    """Counts of a training; None for what is not shown."""

    epochs: int | None = None
    steps: int | None = None  # updates of the whole training
    batches: int | None = None  # of an epoch
    evaluation_batches: float | None = None  # an epoch, on average
    saves_per_epoch: float | None = None

    def or_else(self, other: "TrainingCounts") -> "TrainingCounts":
        """These, and the others' where there is none."""
        names = [each.name for each in fields(self)]
        return TrainingCounts(
            **{name: getattr(self, name) if getattr(self, name) is not None else getattr(other, name) for name in names}
        )
